#include "tests/support/browser.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("browser: " + what); }

// Chromium reads from 3 and writes to 4. Between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, int in, int out, int quiet, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // ended before it could be told of
  // Out of the way of 3 and 4 first.
  const int from = fcntl(in, F_DUPFD, 10);
  const int to = fcntl(out, F_DUPFD, 10);
  dup2(quiet, STDOUT_FILENO);
  dup2(quiet, STDERR_FILENO);
  dup2(from, 3);
  dup2(to, 4);
  close(from);
  close(to);
  execv(arguments[0], arguments);
  _exit(127);
}

// Waits for every child, those that lost their own parent among them. False where some remain.
bool reap_children(std::chrono::seconds patience) {
  const auto until = Clock::now() + patience;
  while (Clock::now() < until) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) return true;
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

int key_code(const std::string& key) {
  static const std::map<std::string, int> codes{{"Tab", 9},
                                                {"Escape", 27},
                                                {"End", 35},
                                                {"Home", 36},
                                                {"ArrowLeft", 37},
                                                {"ArrowUp", 38},
                                                {"ArrowRight", 39},
                                                {"ArrowDown", 40}};
  const auto found = codes.find(key);
  return found == codes.end() ? 0 : found->second;
}

std::string decode_base64(const std::string& text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char letter : text) {
    const std::size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) break;
    bits = (bits << 6U) | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>((bits >> static_cast<unsigned>(count)) & 0xFFU);
  }
  return out;
}

}  // namespace

std::string Browser::find() {
  const char* path = std::getenv("PATH");
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    std::istringstream folders(path != nullptr ? path : "/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const fs::path program = fs::path(folder) / name;
      if (access(program.c_str(), X_OK) == 0) return program.string();
    }
  }
  return {};
}

Browser::Browser() {
  const std::string program = find();
  if (program.empty()) fail("there is no Chromium in PATH");
  std::string folder = (fs::temp_directory_path() / "headroom-browser-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("cannot make a folder for its profile");
  profile_ = folder;
  try {
    start(program);
    const auto target = call("Target.createTarget", {{"url", "about:blank"}});
    const auto attached =
        call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}});
    session_ = attached.at("sessionId");
    for (const char* domain : {"Page", "Runtime", "Log", "Network"}) {
      (void)call(std::string(domain) + ".enable");
    }
  } catch (...) {
    end();
    throw;
  }
}

Browser::~Browser() { end(); }

void Browser::start(const std::string& program) {
  // As root there is no sandbox, in a container perhaps no /dev/shm. All it writes is in its
  // folder.
  std::vector<std::string> words{"/usr/bin/env",
                                 "HOME=" + profile_,
                                 "XDG_CONFIG_HOME=" + profile_,
                                 "XDG_CACHE_HOME=" + profile_,
                                 "TMPDIR=" + profile_,
                                 program,
                                 "--headless",
                                 "--no-sandbox",
                                 "--disable-gpu",
                                 "--disable-dev-shm-usage",
                                 "--disable-breakpad",
                                 "--disable-background-networking",
                                 "--no-first-run",
                                 "--user-data-dir=" + profile_,
                                 "--remote-debugging-pipe"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  // A socket, whose other end may be gone without a SIGPIPE.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) fail("no socket");
  if (pipe2(out.data(), O_CLOEXEC) != 0) fail("no pipe");
  to_child_ = in[1];
  from_child_ = out[0];
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // its helpers, when it has ended, are ours to wait for
  const int quiet = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) become(arguments.data(), in[0], out[1], quiet, parent);
  close(in[0]);
  close(out[1]);
  close(quiet);
  if (child_ < 0) fail("cannot be started");
}

void Browser::end() noexcept {
  if (child_ > 0) {
    try {
      session_.clear();
      (void)call("Browser.close");
    } catch (const std::exception&) {
      // It is ended below.
    }
    close(to_child_);  // without which it ends too
    to_child_ = -1;
    if (!reap_children(std::chrono::seconds(5))) {
      kill(-child_, SIGKILL);  // its group
      (void)reap_children(std::chrono::seconds(5));
    }
  }
  if (to_child_ >= 0) close(to_child_);
  if (from_child_ >= 0) close(from_child_);
  child_ = to_child_ = from_child_ = -1;
  // A process of it that ends now may still write.
  std::error_code error;
  for (int tries = 0; tries < 100 && fs::exists(profile_); ++tries) {
    fs::remove_all(profile_, error);
    if (error) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void Browser::send(const nlohmann::json& message) {
  const std::string text = message.dump() + '\0';
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = ::send(to_child_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) fail("it does not listen any more");
    if (count > 0) at += static_cast<std::size_t>(count);
  }
}

nlohmann::json Browser::read_message() {
  const auto until = Clock::now() + kPatience;
  std::size_t end = 0;
  while ((end = read_.find('\0')) == std::string::npos) {
    pollfd wait{from_child_, POLLIN, 0};
    if (Clock::now() > until) fail("no answer within a minute");
    if (poll(&wait, 1, 1000) <= 0) continue;
    std::array<char, 65536> buffer{};
    const ssize_t count = read(from_child_, buffer.data(), buffer.size());
    if (count == 0) fail("it has ended");
    if (count > 0) read_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  auto message = nlohmann::json::parse(read_.substr(0, end));
  read_.erase(0, end + 1);
  return message;
}

void Browser::note(const nlohmann::json& event) {
  const std::string method = event.value("method", "");
  if (method == "Page.loadEventFired") is_loaded_ = true;
  if (method == "Network.requestWillBeSent") {
    requests_.push_back(event["params"]["request"]["url"]);
  }
  const bool is_wrong =
      method == "Runtime.exceptionThrown" || method == "Log.entryAdded" ||
      (method == "Runtime.consoleAPICalled" &&
       (event["params"]["type"] == "error" || event["params"]["type"] == "warning"));
  if (is_wrong) errors_.push_back(event["params"].dump());
}

nlohmann::json Browser::call(const std::string& method, const nlohmann::json& parameters) {
  nlohmann::json message{{"id", ++last_id_}, {"method", method}};
  message["params"] = parameters.is_null() ? nlohmann::json::object() : parameters;
  if (!session_.empty()) message["sessionId"] = session_;
  send(message);
  while (true) {
    const nlohmann::json answer = read_message();
    if (answer.value("id", 0) != last_id_) {
      note(answer);
      continue;
    }
    if (answer.contains("error")) fail(method + ": " + answer["error"].dump());
    return answer.value("result", nlohmann::json::object());
  }
}

void Browser::set_screen(const Screen& screen) {
  (void)call("Emulation.setDeviceMetricsOverride",
             {{"width", screen.width},
              {"height", screen.height},
              {"deviceScaleFactor", screen.is_phone ? 2 : 1},
              {"mobile", screen.is_phone}});
  (void)call("Emulation.setTouchEmulationEnabled", {{"enabled", screen.is_phone}});
  const nlohmann::json scheme{{"name", "prefers-color-scheme"},
                              {"value", screen.is_dark ? "dark" : "light"}};
  (void)call("Emulation.setEmulatedMedia", {{"features", nlohmann::json::array({scheme})}});
}

void Browser::open(const std::string& address) {
  // By another page, so that an address that differs after its # is loaded too.
  for (const std::string& next : {std::string("about:blank"), address}) {
    is_loaded_ = false;
    (void)call("Page.navigate", {{"url", next}});
    while (!is_loaded_) note(read_message());
  }
}

nlohmann::json Browser::evaluate(const std::string& expression) {
  const auto answer =
      call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
  if (answer.contains("exceptionDetails")) fail(answer["exceptionDetails"].dump());
  return answer["result"].value("value", nlohmann::json());
}

void Browser::move_mouse(double x, double y) {
  (void)call("Input.dispatchMouseEvent", {{"type", "mouseMoved"}, {"x", x}, {"y", y}});
}

void Browser::touch(double x, double y) {
  const nlohmann::json point{{"x", x}, {"y", y}};
  (void)call("Input.dispatchTouchEvent",
             {{"type", "touchStart"}, {"touchPoints", nlohmann::json::array({point})}});
  (void)call("Input.dispatchTouchEvent",
             {{"type", "touchEnd"}, {"touchPoints", nlohmann::json::array()}});
}

void Browser::press(const std::string& key) {
  for (const char* type : {"keyDown", "keyUp"}) {
    (void)call(
        "Input.dispatchKeyEvent",
        {{"type", type}, {"key", key}, {"code", key}, {"windowsVirtualKeyCode", key_code(key)}});
  }
}

void Browser::screenshot(const std::string& path) {
  const auto answer = call("Page.captureScreenshot", {{"captureBeyondViewport", true}});
  std::ofstream(path, std::ios::binary) << decode_base64(answer.at("data"));
}

}  // namespace headroom::testing
