// What is read out of every out-of-memory text of the table (#22).
#include "headroom/diagnose/oom_message.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/diagnose/oom_message_table.h"

namespace headroom::diagnose {
namespace {

using testing::MessageRow;

std::string text_of(const std::optional<VersionRange>& range) {
  if (!range) return "";
  const auto version = [](const memory::PyTorchVersion& of) {
    return std::to_string(of.major) + "." + std::to_string(of.minor);
  };
  return version(range->from) + "-" + (range->to ? version(*range->to) : "");
}

std::string own_text(const OomMessage& message) {
  switch (message.own) {
    case OwnProcess::kNotListed:
      return "";
    case OwnProcess::kNamed:
      return "named";
    case OwnProcess::kByArithmetic:
      return std::to_string(message.own_candidates.at(0));
    case OwnProcess::kMaybe:
      return "maybe";
  }
  return "?";
}

std::string remedies_text(const OomMessage& message) {
  std::string out;
  for (const MessageRemedy& remedy : message.remedies) {
    out += (out.empty() ? "" : ",") + std::string(to_string(remedy.kind));
  }
  return out;
}

void expect_row(const MessageRow& row, const std::string& text) {
  const auto log = read_oom_log(text);
  ASSERT_TRUE(log) << log.error();
  ASSERT_EQ(log->messages.size(), 1U);
  const OomMessage& message = log->messages[0];
  EXPECT_EQ(to_string(message.writer), row.writer);
  EXPECT_EQ(text_of(message.versions), row.versions);
  EXPECT_EQ(message.numbers.asked_bytes, row.asked);
  EXPECT_EQ(message.verdict ? to_string(*message.verdict) : "", row.verdict);
  EXPECT_EQ(own_text(message), row.own);
  EXPECT_EQ(remedies_text(message), row.remedies);
  const memory::Account account = account_of(message);
  EXPECT_EQ(account.sum(), account.total_bytes);
}

class OomMessages : public ::testing::TestWithParam<MessageRow> {};

TEST_P(OomMessages, SayWhatTheyShould) { expect_row(GetParam(), GetParam().text); }

// As a terminal copies it: in colour, broken at any column, with the line ends of Windows.
TEST_P(OomMessages, SayTheSameFromATerminal) {
  const std::string text = GetParam().text;
  if (text.find("Killed") != std::string::npos || text.find("\nMemoryError") != std::string::npos) {
    return;  // those are words of a line
  }
  for (const std::size_t width : {40U, 79U, 120U}) {
    std::string broken = "\x1b[31m";
    for (std::size_t i = 0; i < text.size(); i += width) {
      broken += text.substr(i, width) + "\x1b[0m\r\n";
    }
    expect_row(GetParam(), broken);
  }
}

// As launchers and loggers write it.
TEST_P(OomMessages, SayTheSameBehindPrefixes) {
  for (const std::string prefix : {"[rank3]: ",
                                   "[default3]:",
                                   "(EngineCore pid=518) ERROR 07-29 21:48:54 [core.py:1141] ",
                                   "2026-05-08 11:47:02.257 ",
                                   "[2026-02-24T20:21:58Z] ",
                                   "[1,3]<stderr>:",
                                   "train-1  | ",
                                   "(Trainer pid=4711, ip=10.0.0.2) ",
                                   "3: "}) {
    std::string text = prefix;
    for (const char* c = GetParam().text; *c != '\0'; ++c) {
      text += *c;
      if (*c == '\n') text += prefix;
    }
    expect_row(GetParam(), "step 1 loss 2.5\n" + text + "\nbye\n");
  }
}

// As a browser has it: entities, blanks that do not break, tags in the middle of a word.
TEST_P(OomMessages, SayTheSameFromAPage) {
  std::string text = "<pre class=\"output\"><span style=\"color:#b00\">";
  std::size_t column = 0;
  for (const char* c = GetParam().text; *c != '\0'; ++c) {
    switch (*c) {
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '&':
        text += "&amp;";
        break;
      case '\'':
        text += "&#x27;";
        break;
      case '"':
        text += "&quot;";
        break;
      case ' ':
        text += column % 3 == 0 ? "&nbsp;" : column % 3 == 1 ? " " : "\xc2\xa0";
        break;
      default:
        text += *c;
    }
    if (++column % 37 == 0) text += "</span><span class=\"ansi-bold\">";
  }
  expect_row(GetParam(), text + "</span></pre>");
}

// As a string of JSON: of a container's log, of a notebook's file.
TEST_P(OomMessages, SayTheSameFromJson) {
  std::string text;
  for (const char* c = GetParam().text; *c != '\0'; ++c) {
    if (*c == '\n') {
      text += "\\n";
    } else if (*c == '\t') {
      text += "\\t";
    } else if (*c == '>') {
      text += "\\u003e";
    } else {
      if (*c == '"' || *c == '\\') text += '\\';
      text += *c;
    }
  }
  expect_row(GetParam(), R"({"log":"\u001b[0;31m)" + text + R"(\u001b[0m\n","stream":"stderr"})");
}

// Quoted in a mail, drawn in a box, and while another rank writes its own lines.
TEST_P(OomMessages, SayTheSameBetweenOtherLines) {
  const std::string text = GetParam().text;
  if (text.find("Killed") != std::string::npos || text.find("\nMemoryError") != std::string::npos) {
    return;  // those are words of a line
  }
  std::string quoted;
  std::string box;
  std::string ranks;
  for (std::size_t i = 0; i < text.size(); i += 61) {
    std::string line = text.substr(i, 61);
    std::ranges::replace(line, '\n', ' ');
    quoted += "> > " + line + "\n";
    box += "\u2502 " + line + " \u2502\n";
    ranks += "[rank0]: " + line + "\n[rank1]: step 12, 3.50 GiB in use\n";
  }
  expect_row(GetParam(), quoted);
  expect_row(GetParam(), box);
  expect_row(GetParam(), ranks);
}

// What was cut off anywhere is read as far as it goes, or refused: never more than it says.
TEST_P(OomMessages, AreReadAsFarAsTheyGo) {
  const std::string text = GetParam().text;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto log = read_oom_log(text.substr(0, length));
    if (!log) continue;
    for (const OomMessage& message : log->messages) {
      const memory::Account account = account_of(message);
      EXPECT_EQ(account.sum(), account.total_bytes) << text.substr(0, length);
    }
  }
}

TEST(OomMessageTable, HasFortyAndMore) { EXPECT_GE(testing::all_messages().size(), 40U); }

INSTANTIATE_TEST_SUITE_P(Table,
                         OomMessages,
                         ::testing::ValuesIn(testing::all_messages()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace headroom::diagnose
