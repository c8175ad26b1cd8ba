// Limits, cards and releases of PyTorch, as they are typed: the same for every command.
#include "cli/input/typed_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/replay/cards.h"

#include "cli/input/step_options.h"
#include "tests/support/process.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using headroom::testing::ProcessResult;

ProcessResult typed(std::vector<std::string> arguments) {
  return headroom::testing::run_process({.program = HEADROOM_BINARY,
                                         .arguments = std::move(arguments),
                                         .environment = {{"HEADROOM_CALLED_AS", "headroom"}}});
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& part) {
  const ProcessResult done = typed(arguments);
  EXPECT_EQ(done.exit_code, 2) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  EXPECT_THAT(done.err, HasSubstr(part));
}

const std::string kLeakSample = HEADROOM_SAMPLES "/leak_loss.pickle.zst";

// The commands that take a limit and a card, as far as the word to be tried.
std::vector<std::vector<std::string>> commands_with_a_limit() {
  return {{"replay", kLeakSample}, {"tune", kLeakSample}, {"plan", "mlp"}, {"train", "mlp"}};
}

std::string complaint_of(const std::string& limit) {
  try {
    (void)typed_limit(limit);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TypedLimit, BelowAMebibyteIsRefusedWithWhatWasMeant) {
  for (std::vector<std::string> command : commands_with_a_limit()) {
    command.insert(command.end(), {"--limit", "24"});
    expect_refused(command, "did you mean 24GiB?");
  }
  EXPECT_THAT(complaint_of("0"), HasSubstr("--limit: 0B is too small, the least is 1MiB"));
  EXPECT_THAT(complaint_of("0.5MiB"), HasSubstr("the least is 1MiB"));
  EXPECT_THAT(complaint_of("16384"), HasSubstr("did you mean 16384MiB?"));
  EXPECT_THAT(complaint_of("500KiB"), HasSubstr("write a size such as 24GiB"));
  EXPECT_THAT(complaint_of("24GB"), HasSubstr("24GiB"));
  EXPECT_EQ(complaint_of("1MiB"), "");
  EXPECT_EQ(typed_limit("24GiB"), 24_GiB);
  EXPECT_EQ(typed_limit(""), std::nullopt);
}

TEST(TypedCard, IsKnownAsPeopleAndDriversWriteIt) {
  const std::pair<const char*, const char*> cases[] = {{"H100", "h100"},
                                                       {"h100-80GB", "h100"},
                                                       {"NVIDIA H100 80GB HBM3", "h100"},
                                                       {"A100-80GB", "a100-80"},
                                                       {"NVIDIA A100-SXM4-40GB", "a100-40"},
                                                       {"a100_40", "a100-40"},
                                                       {"RTX 4090", "rtx4090"},
                                                       {"4090", "rtx4090"},
                                                       {"NVIDIA GeForce RTX 3090", "rtx3090"},
                                                       {"Tesla T4", "t4"},
                                                       {"Tesla V100-SXM2-16GB", "v100-16"},
                                                       {"RTX A6000", "a6000"},
                                                       {"L40S", "l40s"}};
  for (const auto& [typed_name, name] : cases) {
    const auto card = typed_card(typed_name);
    ASSERT_TRUE(card) << typed_name;
    EXPECT_EQ(card->name, name) << typed_name;
  }
  for (const replay::Card& card : replay::cards()) {
    EXPECT_EQ(typed_card(std::string(card.name))->name, card.name);
  }
  EXPECT_EQ(typed_card("24GiB")->size_bytes, 24_GiB);
  EXPECT_FALSE(typed_card(""));
}

TEST(TypedCard, ThatIsNotKnownGetsTheNearestNames) {
  for (std::vector<std::string> command : commands_with_a_limit()) {
    command.insert(command.end(), {"--card", "h101"});
    expect_refused(command, "did you mean h100");
    command.back() = "a100";
    expect_refused(command, "did you mean a100-80, a100-40");
    command.back() = "24";
    expect_refused(command, "did you mean 24GiB?");
    command.back() = "24GB";
    expect_refused(command, "24GiB");
    command.back() = "voodoo2";
    expect_refused(command, "'--card list'");
  }
  expect_refused({"replay", kLeakSample, "--card", "h100-40GB"}, "--card list");
  expect_refused({"plan", "mlp", "--card", "h100,rtx409"}, "rtx4090");
  expect_refused({"replay", kLeakSample, "--card", std::string(100'000, 'h')}, "--card");
}

TEST(CardList, IsPrintedByEveryCommandThatTakesACard) {
  for (const char* command : {"replay", "tune", "doctor", "plan", "train"}) {
    const ProcessResult done = typed({command, "--card", "list"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("rtx4090"));
    EXPECT_THAT(done.out, HasSubstr("150,109,880,320"));
  }
  const auto json = nlohmann::json::parse(typed({"tune", "--card", "list", "--json"}).out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["cards"].size(), replay::cards().size());
  EXPECT_EQ(json["cards"][1]["name"], "h200");
  EXPECT_EQ(json["cards"][1]["bytes"], 150'109'880'320);
}

TEST(TypedPyTorch, IsSpelledTheSameEverywhere) {
  for (const char* command : {"replay", "tune", "doctor"}) {
    expect_refused({command, kLeakSample, "--pytorch", "two"}, "--pytorch: ");
    expect_refused({command, kLeakSample, "--version", "2.11"}, "write --pytorch 2.11");
    EXPECT_THAT(typed({command, "--version"}).out, HasSubstr("headroom "));
    EXPECT_THAT(typed({command, "--help"}).out, HasSubstr("--pytorch VERSION"));
  }
}

TEST(TypedBy, SaysWhatThereIs) {
  expect_refused({"info", kLeakSample, "--by", "nonsense"},
                 "'nonsense' is unknown; use site, stack or");
  EXPECT_THAT(typed({"info", kLeakSample}).out, HasSubstr("linear.py:134 forward"));
  EXPECT_THAT(typed({"info", kLeakSample, "--by", "stack"}).out,
              HasSubstr("workloads.py:162 <module>"));
  EXPECT_THAT(typed({"info", kLeakSample, "--by", "Module"}).out, HasSubstr("linear.py forward"));
  const std::string without = HEADROOM_SAMPLES "/gpt2_varlen.pickle.zst";
  EXPECT_THAT(typed({"info", without, "--by", "site"}).out, HasSubstr("no stacks were recorded"));
  EXPECT_THAT(typed({"info", without}).out, Not(HasSubstr("no stacks were recorded")));
}

TEST(TypedWords, ThatAreEmptyAreRefused) {
  for (const char* option : {"--limit", "--card", "--pytorch"}) {
    for (const char* command : {"replay", "tune", "doctor"}) {
      expect_refused({command, kLeakSample, option, ""}, "its value is empty");
    }
  }
  expect_refused({"info", kLeakSample, "--by", ""}, "--by: its value is empty");
  expect_refused({"train", "mlp", "--record", ""}, "--record: its value is empty");
}

TEST(TypedRecord, IsRefusedWhereTheFileWouldBeSomethingElse) {
  for (const char* name : {"x.csv", "x.pickle", "x.json", "x.hrt.zst", "x", "x.speedscope.json"}) {
    expect_refused({"train", "mlp", "--device", "meta", "--record", name}, ".hrt");
  }
}

TEST(TypedCards, APlanForACardIsForAGpu) {
  StepArguments typed{.model = "mlp"};
  EXPECT_FALSE(plan_options(typed).profile);
  typed.cards = {"h200", "rtx4090"};
  const train::PlanOptions options = plan_options(typed);
  EXPECT_EQ(options.limit_bytes, replay::find_card("rtx4090")->size_bytes);
  ASSERT_TRUE(options.profile);
  EXPECT_EQ(options.profile->stands_for, device::DeviceKind::kCuda);
}

}  // namespace
}  // namespace headroom::cli
