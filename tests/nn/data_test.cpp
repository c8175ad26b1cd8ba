// Datasets: what their examples are, and files that are not what they should be.
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/nn.h"

#include "tests/autograd/world.h"
#include "tests/support/temp_folder.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

class DataFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_.path(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  testing::TempFolder folder_{};
};

std::string big_endian_bytes(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(value >> static_cast<unsigned>(shift) & 0xFFU));
  }
  return out;
}

std::string idx_bytes(const std::vector<std::uint32_t>& sizes, const std::string& data) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) out += big_endian_bytes(size);
  return out + data;
}

TEST(Dataset, RowsOfTensors) {
  const nn::TensorDataset data(from({1, 2, 3, 4, 5, 6}).view({3, 2}), arange(3));
  EXPECT_EQ(data.size(), 3);
  EXPECT_THAT(data.get(1).input.to_doubles(), ElementsAre(3, 4));
  EXPECT_THAT(data.get(1).target.to_integers(), ElementsAre(1));
  EXPECT_THAT(message_of([&] { (void)data.get(3); }),
              HasSubstr("there is no example 3, only 0 to 2"));
  EXPECT_THAT(message_of([] { nn::TensorDataset(ones({3}), ones({2})); }),
              HasSubstr("3 inputs and 2 targets"));
}

TEST(Dataset, SyntheticExamplesAreAFunctionOfTheirNumber) {
  const nn::SyntheticClasses images(100, {3, 8, 8}, 10, 7);
  EXPECT_EQ(images.get(42).input.to_doubles(), images.get(42).input.to_doubles());
  EXPECT_NE(images.get(42).input.to_doubles(), images.get(43).input.to_doubles());
  EXPECT_NE(images.get(42).input.to_doubles(),
            nn::SyntheticClasses(100, {3, 8, 8}, 10, 8).get(42).input.to_doubles());
  std::set<std::int64_t> classes;
  for (std::int64_t i = 0; i < 100; ++i) classes.insert(images.get(i).target.item<std::int64_t>());
  EXPECT_EQ(classes.size(), 10U);
  EXPECT_THAT(message_of([] { nn::SyntheticClasses(1, {3}, 0); }),
              HasSubstr("at least 1 class is wanted, not 0"));
}

TEST(Dataset, TokensFollowOneAnother) {
  const nn::SyntheticTokens tokens(10, 200, 16, 1);
  const nn::Example example = tokens.get(3);
  const auto in = example.input.to_integers();
  const auto next = example.target.to_integers();
  std::map<std::int64_t, std::map<std::int64_t, int>> follows;
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (k > 0) {
      EXPECT_EQ(in[k], next[k - 1]);
    }
    ++follows[in[k]][next[k]];
  }
  int decided = 0;
  for (const auto& entry : follows) {
    int most = 0;
    for (const auto& [token, count] : entry.second) most = std::max(most, count);
    decided += most;
  }
  EXPECT_GT(decided, 160);  // of 200
}

// Fifty steps of a small model on each: the loss has fallen to less than the share given.
TEST(Dataset, SyntheticSetsCanBeLearned) {
  struct Case {
    const char* name;
    std::unique_ptr<nn::Dataset> data;
    std::function<std::unique_ptr<nn::Module>()> model;
    std::function<Tensor(const Tensor&, const Tensor&)> loss;
    double share;
  };
  const auto classify = [](const Tensor& y, const Tensor& t) {
    return cross_entropy(y.reshape({-1, y.size(-1)}), t.reshape({-1}));
  };
  const auto dense = [](std::int64_t in, std::int64_t out) {
    return [=] {
      auto net = std::make_unique<nn::Sequential>();
      net->emplace<nn::Flatten>();
      net->emplace<nn::Linear>(in, 32);
      net->emplace<nn::ReLU>();
      net->emplace<nn::Linear>(32, out);
      return net;
    };
  };
  std::vector<Case> cases;
  cases.push_back({"classes",
                   std::make_unique<nn::SyntheticClasses>(512, Shape{1, 6, 6}, 5),
                   dense(36, 5),
                   classify,
                   0.3});
  cases.push_back({"regression",
                   std::make_unique<nn::SyntheticRegression>(512, Shape{8}, Shape{4}),
                   dense(8, 4),
                   [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); },
                   0.3});
  cases.push_back({"tokens",
                   std::make_unique<nn::SyntheticTokens>(512, 12, 16),
                   [] {
                     auto net = std::make_unique<nn::Sequential>();
                     net->emplace<nn::Embedding>(16, 32);
                     net->emplace<nn::Linear>(32, 16);
                     return net;
                   },
                   classify,
                   0.6});
  for (const Case& one : cases) {
    manual_seed(1);
    const auto model = one.model();
    nn::Adam adam(model->parameters(), {.lr = 0.01});
    const nn::DataLoader loader(*one.data, {.batch = 32, .shuffle = true});
    double first = 0;
    double last = 0;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      for (const nn::Batch& batch : loader.epoch(epoch)) {
        adam.zero_grad();
        const Tensor loss = one.loss((*model)(batch.input), batch.target);
        loss.backward();
        adam.step();
        last = loss.item<double>();
        if (first == 0) first = last;
      }
    }
    EXPECT_LT(last, one.share * first) << one.name << ": " << first << " to " << last;
  }
}

TEST_F(DataFiles, BytesAreTokens) {
  const nn::ByteText text(file("text", "hello, world"), 5);
  EXPECT_EQ(text.size(), 2);
  EXPECT_THAT(text.get(1).input.to_integers(), ElementsAre(',', ' ', 'w', 'o', 'r'));
  EXPECT_THAT(text.get(1).target.to_integers(), ElementsAre(' ', 'w', 'o', 'r', 'l'));
  EXPECT_EQ(nn::ByteText(file("exact", "abcdef"), 5).size(), 1);
  EXPECT_EQ(nn::ByteText(file("high", "\xFF\x80"), 1).get(0).input.item<int>(), 255);
  EXPECT_THAT(
      message_of([&] { nn::ByteText(file("short", "abcde"), 5); }),
      HasSubstr("short: 5 bytes are too few for sequences of 5 bytes and the one that follows"));
  EXPECT_THAT(message_of([&] { nn::ByteText(file("empty", ""), 5); }), HasSubstr("too few"));
  EXPECT_THAT(message_of([&] { nn::ByteText(folder_.path("none"), 5); }),
              HasSubstr("none: it cannot be opened: No such file or directory"));
  EXPECT_THAT(message_of([&] { nn::ByteText("x", 0); }), HasSubstr("at least 1 byte"));
}

TEST_F(DataFiles, IdxImagesAndLabels) {
  const nn::IdxImages data(file("images", idx_bytes({2, 1, 3}, std::string("\0\x33\xFF\1\2\3", 6))),
                           file("labels", idx_bytes({2}, "\4\1")));
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(data.classes(), 5);
  EXPECT_EQ(data.spec().input.shape, (Shape{1, 1, 3}));
  EXPECT_THAT(data.get(0).input.to_doubles(), ElementsAre(0, static_cast<double>(0.2F), 1));
  EXPECT_EQ(data.get(0).target.item<int>(), 4);
}

TEST_F(DataFiles, WrongIdxFilesAreRefusedWithThePlace) {
  const std::string labels = file("labels", idx_bytes({2}, "\4\1"));
  const std::string good = idx_bytes({2, 1, 3}, "abcdef");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"at byte 2: the file ends in its first 4 bytes", good.substr(0, 2)},
      {"at byte 9: the file ends among the sizes of its 3 dimensions", good.substr(0, 9)},
      {"at byte 20: the file ends here, where 6 bytes of elements end at byte 22",
       good.substr(0, 20)},
      {"at byte 22: more bytes follow", good + "x"},
      {"at byte 0: this is a gzip file; unpack it first", "\x1F\x8B\x08 and so on"},
      {"at byte 0: an IDX file begins with two zero bytes", "PNG and so on"},
      {"at byte 2: elements of type 13; only 8", std::string("\0\0\x0D\1", 4) + good},
      {"at byte 3: no dimensions", std::string("\0\0\x08\0", 4)},
      {"at byte 8: a size of 0", idx_bytes({2, 0, 3}, "")},
      {"at byte 8: sizes of more elements than the file", idx_bytes({2, 0xFFFFFFFFU, 3}, "abc")},
      {"at byte 3: 1 dimensions, where images have 3", idx_bytes({2}, "ab")},
      {"at byte 4: 2 labels for the 3 images of", idx_bytes({3, 1, 1}, "abc")},
  };
  for (const auto& [message, bytes] : cases) {
    EXPECT_THAT(message_of([&, bytes = bytes] { nn::IdxImages(file("images", bytes), labels); }),
                HasSubstr(message));
  }
}

}  // namespace
}  // namespace headroom
