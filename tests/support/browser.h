// Browser: a Chromium without a window, driven through its DevTools protocol, for tests of pages.
//
//   Browser browser;
//   browser.set_screen({.width = 375, .height = 800, .is_phone = true});
//   browser.open("file:///tmp/page.html");
//   browser.press("ArrowRight");
//   EXPECT_EQ(browser.evaluate("document.title"), "page");
//   EXPECT_THAT(browser.errors(), IsEmpty());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace headroom::testing {

struct Screen {
  int width = 1100;
  int height = 900;
  bool is_phone = false;
  bool is_dark = false;  // what the reader prefers
};

class Browser {
 public:
  // The program, from PATH; empty where there is none.
  [[nodiscard]] static std::string find();

  // Starts it with a profile of its own in a temporary folder. Throws std::runtime_error when it
  // cannot be started or does not answer within a minute; so do all others.
  Browser();
  // Ends it with all of its processes and removes the profile.
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void set_screen(const Screen& screen);
  // Waits until it is loaded.
  void open(const std::string& address);
  // The value of an expression of JavaScript. Throws where it throws.
  nlohmann::json evaluate(const std::string& expression);
  void move_mouse(double x, double y);
  void touch(double x, double y);
  // A key by its name in KeyboardEvent.key: "ArrowLeft", "Tab", "Escape".
  void press(const std::string& key);
  // Of what is shown, as a PNG file.
  void screenshot(const std::string& path);

  // What went wrong in pages so far: exceptions, errors and warnings of the console.
  [[nodiscard]] const std::vector<std::string>& errors() const noexcept { return errors_; }
  // What pages asked for so far, themselves among it.
  [[nodiscard]] const std::vector<std::string>& requests() const noexcept { return requests_; }
  [[nodiscard]] const std::string& profile() const noexcept { return profile_; }

 private:
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters = {});
  void send(const nlohmann::json& message);
  nlohmann::json read_message();
  void note(const nlohmann::json& event);
  void start(const std::string& program);
  void end() noexcept;

  std::string profile_;
  int child_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string read_{};
  int last_id_ = 0;
  std::string session_{};
  bool is_loaded_ = false;
  std::vector<std::string> errors_{};
  std::vector<std::string> requests_{};
};

}  // namespace headroom::testing
