// The page of `headroom plan -o`: the file, and the page as Chromium shows it.
//
// HEADROOM_SCREENSHOTS=FOLDER ctest --test-dir build -R PlanPage   leaves pictures to look at.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/browser.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using headroom::testing::Browser;
using headroom::testing::ProcessResult;
using headroom::testing::Screen;
using Json = nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ProcessResult plan_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return headroom::testing::run_process({.program = HEADROOM_BINARY, .arguments = arguments});
}

std::string text_of(const fs::path& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(PlanCommand, WritesAPageThatAsksNobodyForAnything) {
  const fs::path path = fs::path(::testing::TempDir()) / "headroom-plan-test.html";
  fs::remove(path);
  const std::vector<std::string> arguments{
      "mlp", "--depth", "2", "--batch", "8", "-o", path.string()};
  EXPECT_EQ(plan_with(arguments).exit_code, 0);
  const std::string page = text_of(path);
  EXPECT_THAT(page, HasSubstr("<title>headroom plan: mlp</title>"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("@DATA@")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_LT(page.size(), 2U << 20U);
  EXPECT_THAT(plan_with(arguments).err, HasSubstr("exists; --force overwrites it"));
  fs::remove(path);
}

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

bool is_ci() {
  const char* const ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

// Whether a process was started with this in its command.
bool is_in_a_command(const std::string& text) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (text_of(entry.path() / "cmdline").find(text) != std::string::npos) return true;
  }
  return false;
}

class PlanPage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Browser::find().empty()) {
      if (is_ci()) FAIL() << "CI is without Chromium; ./test installs it where CI=true";
      GTEST_SKIP() << "no Chromium to open the page with; apt-get install chromium gets it";
    }
    browser_ = std::make_unique<Browser>();
  }

  void TearDown() override {
    fs::remove(path_);
    if (browser_ == nullptr) return;
    EXPECT_THAT(browser_->errors(), IsEmpty());
    EXPECT_THAT(browser_->requests(), Each(HasSubstr(path_.filename().string())));
    const std::string profile = browser_->profile();
    browser_.reset();
    EXPECT_FALSE(fs::exists(profile));
    EXPECT_FALSE(is_in_a_command(profile));
  }

  void write_page(std::vector<std::string> arguments) {
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = fs::path(::testing::TempDir()) / ("headroom-" + test + ".html");
    arguments.insert(arguments.end(), {"-o", path_.string(), "--force"});
    const ProcessResult result = plan_with(arguments);
    if (result.exit_code != 0) throw std::runtime_error("plan: " + result.err);
    open("");
  }

  void open(const std::string& choices) { browser_->open("file://" + path_.string() + choices); }
  Json evaluate(const std::string& expression) { return browser_->evaluate(expression); }
  std::string text(const std::string& id) {
    return evaluate("document.getElementById('" + id + "').textContent");
  }
  // Of an attribute; empty where there is none.
  std::string attribute(const std::string& id, const std::string& name) {
    return evaluate("document.getElementById('" + id + "').getAttribute('" + name + "') || ''");
  }
  Box box_of(const std::string& selector) {
    const Json box =
        evaluate("document.querySelector('" + selector + "').getBoundingClientRect().toJSON()");
    return {box["x"], box["y"], box["width"], box["height"]};
  }
  void focus(const std::string& id) {
    (void)evaluate("document.getElementById('" + id + "').focus()");
  }
  // By the keyboard, as somebody without a mouse.
  void tab_to(const std::string& id) {
    for (int i = 0; i < 20 && evaluate("document.activeElement.id") != id; ++i) {
      browser_->press("Tab");
    }
    EXPECT_EQ(evaluate("document.activeElement.id"), id);
  }

  // The numbers of the page are those of the command that it shows.
  void expect_numbers_of_its_command() {
    std::istringstream words(text("command"));
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    ASSERT_GT(arguments.size(), 2U);
    EXPECT_EQ(arguments[0] + " " + arguments[1], "headroom plan");
    arguments.erase(arguments.begin(), arguments.begin() + 2);
    arguments.emplace_back("--json");
    const ProcessResult result = plan_with(arguments);
    ASSERT_EQ(result.exit_code, 0) << text("command") << result.err;
    const Json plan = Json::parse(result.out);
    SCOPED_TRACE(text("command"));
    EXPECT_EQ(number_of(attribute("peak", "title")), plan["peak_allocated"]);
    EXPECT_EQ(number_of(attribute("reserved", "title")), plan["peak_reserved"]);
    EXPECT_EQ(number_of(text("subtitle")), plan["parameters"]);
    EXPECT_THAT(text("when"), HasSubstr(plan["peak_phase"]));
    // The table leaves out a category that no plan of the page has memory in.
    const Json shown = table();
    const Json planned = categories_of(plan);
    for (const auto& [name, bytes] : planned.items()) {
      EXPECT_EQ(shown.value(name, std::uint64_t{0}), bytes) << name;
    }
  }

  // Bytes by category, as the table has them.
  Json table() {
    Json out;
    for (const Json& row : evaluate("[...document.querySelectorAll('#rows tr:not(.sum)')]"
                                    ".map(row => [...row.cells].map(cell => cell.textContent))")) {
      out[row[0].get<std::string>()] = number_of(row[2]);
    }
    return out;
  }
  // Bytes by category at the cursor, and "together".
  Json tip() {
    Json out;
    out["together"] =
        bytes_in_brackets(evaluate("document.querySelector('#tip .title').textContent"));
    for (const Json& row :
         evaluate("[...document.querySelectorAll('#tip .part')]"
                  ".map(row => [...row.children].map(part => part.textContent))")) {
      out[row[0].get<std::string>()] = bytes_in_brackets(row[1]);
    }
    return out;
  }
  bool has_tip() { return !evaluate("document.getElementById('tip').hidden").get<bool>(); }

  static Json categories_of(const Json& plan) {
    const Json& all = plan["categories"];
    Json out{{"parameters", all["parameter"]},
             {"optimizer state", all["optimizer_state"]},
             {"data", all["data"]},
             {"gradients", all["gradient"]},
             {"activations", all["activation"]},
             {"workspace", all["workspace"]}};
    EXPECT_EQ(all["unknown"], 0);
    return out;
  }
  // 1234 of "1,234 bytes".
  static std::uint64_t number_of(const std::string& text) {
    std::uint64_t out = 0;
    for (const char letter : text) {
      if (letter == ',') continue;
      if (letter < '0' || letter > '9') break;
      out = 10 * out + static_cast<std::uint64_t>(letter - '0');
    }
    return out;
  }
  // 1234 of "1.21 KiB (1,234 B)".
  static std::uint64_t bytes_in_brackets(const std::string& text) {
    return number_of(text.substr(text.find('(') + 1));
  }

  std::unique_ptr<Browser> browser_{};
  fs::path path_{};
};

TEST_F(PlanPage, FollowsItsSlidersInChromiumWithoutANetwork) {
  write_page({"gpt2-tiny", "--depth", "1", "--batch", "1"});
  EXPECT_EQ(text("subtitle"),
            "82,880 parameters in 1 block · batch 1 of 64 tokens · f32 · adamw · no checkpointing");
  expect_numbers_of_its_command();
  const std::string curve = evaluate("document.querySelector('#chart .area').getAttribute('d')");
  // A hand moves the controls; the address follows.
  for (const char* slider : {"depth", "batch"}) {
    focus(slider);
    browser_->press("ArrowRight");
  }
  focus("seq");
  browser_->press("ArrowLeft");
  EXPECT_EQ(text("subtitle"),
            "132,864 parameters in 2 blocks · batch 2 of 32 tokens · f32 · adamw · "
            "no checkpointing");
  EXPECT_EQ(text("batch-value"), "2");
  EXPECT_NE(evaluate("document.querySelector('#chart .area').getAttribute('d')"), curve);
  EXPECT_THAT(evaluate("location.hash").get<std::string>(), HasSubstr("seq=32&batch=2"));
  expect_numbers_of_its_command();
  // The address moves them too.
  for (const char* choices : {"#depth=2&seq=8&batch=4&precision=bf16&optimizer=sgd&checkpoint=sqrt",
                              "#seq=16&batch=4&optimizer=momentum&checkpoint=all"}) {
    open(choices);
    expect_numbers_of_its_command();
  }
  EXPECT_THAT(text("subtitle"),
              HasSubstr("batch 4 of 16 tokens · f32 · momentum · checkpointing all"));
  open("#batch=7&depth=&card=voodoo&at=x&more");  // none of these is there
  EXPECT_EQ(text("batch-value"), "1");
}

TEST_F(PlanPage, SaysWhetherItFitsInChromium) {
  write_page({"mlp", "--depth", "1", "--batch", "2", "--card", "rtx4090"});
  EXPECT_THAT(text("subtitle"), HasSubstr("fits rtx4090 (23.65 GiB)"));
  EXPECT_THAT(text("command"), HasSubstr("--card rtx4090"));
  expect_numbers_of_its_command();
  const auto peak = number_of(attribute("peak", "title"));
  const auto reserved = number_of(attribute("reserved", "title"));
  ASSERT_LT(peak, reserved);
  const std::pair<std::uint64_t, const char*> cases[] = {
      {reserved, "fits"}, {reserved - 1, "may fit"}, {peak - 1, "does not fit"}};
  for (const auto& [limit, verdict] : cases) {
    open("#limit=" + std::to_string(limit) + "B");
    EXPECT_EQ(text("verdict"), verdict);
    EXPECT_THAT(text("subtitle"), HasSubstr("no checkpointing · " + std::string(verdict)));
    EXPECT_THAT(text("command"), HasSubstr(" --limit "));
  }
  open("#limit=lots");
  EXPECT_EQ(attribute("limit", "aria-invalid"), "true");
  EXPECT_EQ(text("limit-error"), "a size, as 24GiB");
  EXPECT_EQ(text("verdict"), "");
  open("#card=none");
  EXPECT_THAT(text("subtitle"), Not(HasSubstr("fit")));
}

TEST_F(PlanPage, ShowsTheBytesUnderItsCursorInChromium) {
  write_page({"mlp", "--depth", "1", "--batch", "2"});
  const Json at_peak = table();
  const auto peak = number_of(attribute("peak", "title"));
  const Box box = box_of("#chart");
  const double middle = box.y + box.height / 2;
  EXPECT_FALSE(has_tip());
  // The mouse.
  const Box dot = box_of("#chart .dot");
  browser_->move_mouse(dot.x + dot.width / 2, middle);
  ASSERT_TRUE(has_tip());
  Json shown = tip();
  EXPECT_EQ(shown["together"], peak);
  shown.erase("together");
  EXPECT_EQ(shown, at_peak);
  for (const double part : {0.2, 0.4, 0.7, 0.93}) {
    browser_->move_mouse(box.x + part * box.width, middle);
    shown = tip();
    std::uint64_t sum = 0;
    for (const auto& [name, bytes] : shown.items()) sum += bytes.get<std::uint64_t>();
    EXPECT_EQ(sum, 2 * shown["together"].get<std::uint64_t>()) << shown;
  }
  EXPECT_THAT(text("tip"), HasSubstr(", optimizer step"));
  browser_->move_mouse(1, 1);
  EXPECT_FALSE(has_tip());
  // The keyboard.
  tab_to("chart");
  EXPECT_NE(evaluate("getComputedStyle(document.getElementById('chart')).outlineStyle"), "none");
  ASSERT_TRUE(has_tip());
  EXPECT_EQ(tip()["together"], peak);
  const auto event = [this] { return std::stoi(attribute("chart", "aria-valuenow")); };
  const int first = event();
  browser_->press("ArrowRight");
  EXPECT_GT(event(), first);
  browser_->press("ArrowLeft");
  browser_->press("ArrowLeft");
  EXPECT_LT(event(), first);
  EXPECT_THAT(attribute("chart", "aria-valuetext"), HasSubstr("activations "));
  browser_->press("Home");
  EXPECT_EQ(event(), 0);
  browser_->press("Escape");
  EXPECT_FALSE(has_tip());
  // A finger.
  browser_->set_screen({.width = 375, .height = 800, .is_phone = true});
  open("");
  (void)evaluate("document.getElementById('chart').scrollIntoView({ block: 'center' })");
  const Box small = box_of("#chart");
  browser_->touch(200, small.y + small.height / 2);
  EXPECT_TRUE(has_tip());
}

TEST_F(PlanPage, HasNoControlThatDoesNothingInChromium) {
  write_page({"resnet50", "--batch", "1"});
  const Json labels = evaluate(
      "[...document.querySelectorAll('#controls label')].filter(label => label.offsetParent)"
      ".map(label => label.id)");
  EXPECT_THAT(
      labels.get<std::vector<std::string>>(),
      ElementsAre(
          "batch-label", "precision-label", "optimizer-label", "checkpoint-label", "card-label"));
  EXPECT_EQ(text("subtitle"),
            "25,557,032 parameters · batch 1 · f32 · momentum · no checkpointing");
  EXPECT_THAT(evaluate("document.body.innerText").get<std::string>(), Not(HasSubstr("blocks")));
  expect_numbers_of_its_command();
}

// Of the chart's texts: those that leave it or cover another.
constexpr const char* kBadTexts = R"((() => {
  const chart = document.getElementById('chart').getBoundingClientRect();
  const texts = [...document.querySelectorAll('#chart text')]
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  const out = texts.filter(([, box]) => box.left < chart.left - 1 || box.right > chart.right + 1 ||
    box.top < chart.top - 1 || box.bottom > chart.bottom + 1).map(([text]) => text);
  texts.forEach(([text, a], i) => texts.slice(0, i).forEach(([other, b]) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) out.push(text + ' / ' + other);
  }));
  return out;
})())";

// Contrast of the colours of texts with the paper: 4.5 is enough for anybody.
constexpr const char* kPoorContrast = R"((() => {
  const light = colour => colour.match(/[\d.]+/g).slice(0, 3).map(part => part / 255)
    .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [.2126, .7152, .0722][i], 0);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const contrast = colour => (Math.max(light(colour), paper) + .05) / (Math.min(light(colour), paper) + .05);
  const texts = [...document.querySelectorAll('h1, p, label, output, #facts b, #facts span, td, th')]
    .map(text => [text.textContent, getComputedStyle(text).color]);
  const inside = [...document.querySelectorAll('#chart text')]
    .map(text => [text.textContent, getComputedStyle(text).fill]);
  return [...texts, ...inside].filter(([, colour]) => contrast(colour) < 4.5);
})())";

TEST_F(PlanPage, IsReadableOnAPhoneInTheDarkAndWithoutColourInChromium) {
  write_page({"gpt2-tiny", "--depth", "1", "--batch", "1"});
  // Signs differ by what is drawn, whatever the colour.
  EXPECT_EQ(evaluate("new Set([...document.querySelectorAll('#signs path')].map(path => "
                     "path.getAttribute('d'))).size"),
            evaluate("document.querySelectorAll('#signs pattern').length"));
  const std::pair<std::string, Screen> screens[] = {
      {"light", {}},
      {"dark", {.is_dark = true}},
      {"phone", {.width = 375, .height = 800, .is_phone = true}},
      {"phone-dark", {.width = 375, .height = 800, .is_phone = true, .is_dark = true}},
      {"narrow", {.width = 320, .height = 600, .is_phone = true}}};
  std::set<std::string> papers;
  for (const auto& [name, screen] : screens) {
    browser_->set_screen(screen);
    const auto peak = number_of(attribute("peak", "title"));
    for (const std::string& choices : {std::string(),
                                       "#checkpoint=all&limit=" + std::to_string(peak) + "B",
                                       "#limit=" + std::to_string(peak * 96 / 100) + "B&at=40",
                                       std::string("#depth=2&batch=4&card=h100&optimizer=sgd")}) {
      SCOPED_TRACE(name + " " + choices);
      open(choices);
      EXPECT_LE(evaluate("document.documentElement.scrollWidth"), screen.width);
      EXPECT_EQ(evaluate(kBadTexts), Json::array());
      EXPECT_EQ(evaluate(kPoorContrast), Json::array());
    }
    papers.insert(evaluate("getComputedStyle(document.body).backgroundColor"));
    // Axes with values: round sizes with their unit, counts of events, phases.
    const std::vector<std::string> sizes =
        evaluate("[...document.querySelectorAll('#chart .bytes')].map(text => text.textContent)");
    EXPECT_GE(sizes.size(), 3U);
    EXPECT_EQ(sizes.front(), "0");
    EXPECT_THAT(sizes.back(), ::testing::MatchesRegex("[0-9.]+ [KM]iB"));
    EXPECT_GE(evaluate("document.querySelectorAll('#chart .event').length"), 3);
    EXPECT_THAT(evaluate("document.getElementById('chart').textContent").get<std::string>(),
                HasSubstr("backward"));
    if (const char* const folder = std::getenv("HEADROOM_SCREENSHOTS")) {
      browser_->screenshot((fs::path(folder) / (name + ".png")).string());
    }
  }
  EXPECT_EQ(papers.size(), 2U);
}

}  // namespace
}  // namespace headroom::cli
