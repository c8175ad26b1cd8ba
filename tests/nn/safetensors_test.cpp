// Files: what is written reads the same, and what is wrong is refused with its place.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/nn.h"

#include "tests/autograd/world.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::message_of;
using testing::World;

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("headroom-" + std::to_string(::getpid()) + "-" + test->name());
    fs::create_directories(folder_);
  }
  ~Safetensors() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "a.safetensors") const {
    return (folder_ / name).string();
  }
  [[nodiscard]] static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& bytes) const {
    std::ofstream out(path(), std::ios::binary);
    out << bytes;
  }

  fs::path folder_;
};

std::string with_length(const std::string& json) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + json;
}

TEST_F(Safetensors, EveryTypeComesBackTheSame) {
  std::vector<nn::NamedTensor> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.emplace_back(to_string(dtype), from({0, 1, 2.5, -3, 7, 9}).view({2, 3}).to(dtype));
  }
  tensors.emplace_back("number", scalar_tensor(3.25));
  tensors.emplace_back("nothing", zeros({3, 0, 2}));
  tensors.emplace_back("turned", arange(6).view({2, 3}).t());
  tensors.emplace_back("odd \"name\"\n\\ \xC3\xA9", ones({1}));
  const nn::Metadata metadata{{"format", "pt"}, {"who", "a \"quoted\"\tname"}};
  nn::save_safetensors(tensors, path(), metadata);

  const nn::SafetensorsFile file = nn::read_safetensors(path());
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto is_it = [&name = name](const auto& other) { return other.first == name; };
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(), is_it);
    ASSERT_NE(found, file.tensors.end()) << name;
    EXPECT_TRUE(equal(found->second, tensor)) << name;
  }
}

TEST_F(Safetensors, TheLayoutIsTheFormats) {
  nn::save_safetensors({{"w", from({1, 2})}}, path(), {{"k", "v"}});
  const std::string json =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string bytes = bytes_of(path());
  const std::size_t length = (json.size() + 7) / 8 * 8;
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])), length);
  EXPECT_EQ(bytes.size(), 8 + length + 8) << "data aligned to 8";
}

TEST_F(Safetensors, ReadsOntoADevice) {
  nn::save_safetensors({{"w", from({1, 2})}}, path());
  const World world;
  const nn::SafetensorsFile file = nn::read_safetensors(path(), world.allocator());
  EXPECT_EQ(&file.tensors[0].second.storage().allocator(), &world.allocator());
  const World meta(World::Kind::kMeta);
  EXPECT_TRUE(nn::read_safetensors(path(), meta.allocator()).tensors[0].second.is_meta());
}

// --- What is wrong
// --------------------------------------------------------------------------------

struct Wrong {
  const char* what;
  std::string bytes;
  std::string message;
};

TEST_F(Safetensors, WhatIsWrongIsRefusedWithItsPlace) {
  const std::string data(8, '\0');
  const auto entry = [](const std::string& name, const std::string& rest) {
    return "\"" + name + "\":{" + rest + "}";
  };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::string behind = R"("dtype":"F32","shape":[2],"data_offsets":[8,16])";
  const std::vector<Wrong> cases = {
      {"empty", "", "at byte 0: the file ends before the length of its header"},
      {"short", "\x01\x02", "at byte 2: the file ends before the length of its header"},
      {"lying length",
       with_length("{}").replace(1, 1, "\x01"),
       "at byte 0: a header of 258 bytes in a file of 10"},
      {"huge length",
       std::string(8, '\xFF'),
       "at byte 0: a header of 18446744073709551615 bytes; 100,000,000 are the most"},
      {"no object", with_length("[]"), "at byte 8: the header is not a JSON object"},
      {"no end", with_length("{\"w\""), "at byte 12: ':' is missing"},
      {"text behind", with_length("{} x"), "at byte 11: text after the end of the header"},
      {"name twice",
       with_length("{" + entry("w", good) + "," + entry("w", behind) + "}") + data + data,
       "at byte 62: \"w\" comes twice"},
      {"metadata twice",
       with_length(R"({"__metadata__":{"a":"b","a":"c"}})"),
       "at byte 33: \"a\" comes twice"},
      {"unknown type",
       with_length(R"({"w":{"dtype":"I16","shape":[2],"data_offsets":[0,8]}})") + data,
       "at byte 22: \"w\" is of type \"I16\", which is not read"},
      {"unknown field",
       with_length(R"({"w":{"type":"F32"}})"),
       "at byte 14: \"w\" has \"type\", which the format does not"},
      {"missing field",
       with_length(R"({"w":{"dtype":"F32","shape":[2]}})"),
       "at byte 9: \"w\" has no \"data_offsets\""},
      {"negative size",
       with_length(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})") + data,
       "at byte 37: a whole number from 0 is wanted"},
      {"fraction",
       with_length(R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})") + data,
       "at byte 38: ']' is missing"},
      {"number too large",
       with_length(R"({"w":{"dtype":"F32","shape":[99999999999999999999]}})"),
       "at byte 37: a number does not fit into 63 bits"},
      {"many dimensions",
       with_length(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1]}})"),
       "at byte 36: \"w\" has 9 dimensions; 8 are the most"},
      {"size of another shape",
       with_length(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})") + data,
       "at byte 9: \"w\" of F32[3] has 8 bytes of data"},
      {"overflow",
       with_length(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
       "at byte 9: \"w\" of F32[4611686018427387904, 4] has 0 bytes of data"},
      {"backwards",
       with_length(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})") + data,
       "at byte 55: \"w\" has data_offsets that are no range"},
      {"beyond the end",
       with_length("{" + entry("w", good) + "}") + data.substr(1),
       "at byte 55: \"w\" ends at 8 of 7 bytes of data"},
      {"overlap",
       with_length("{" + entry("a", good) + "," +
                   entry("b", R"("dtype":"F32","shape":[2],"data_offsets":[4,12])") + "}") +
           data + data,
       "at byte 62: \"b\" starts at 4 of the data, inside the one before at 8"},
      {"hole",
       with_length("{" + entry("b", behind) + "}") + data + data,
       "at byte 9: \"b\" starts at 8 of the data, past the end of the one before at 0"},
      {"data of nobody",
       with_length("{" + entry("w", good) + "}") + data + data,
       "at byte 70: 8 bytes of data are no tensor's"},
      {"half a surrogate", with_length(R"({"\ud800":{}})"), "at byte 16: half of a surrogate pair"},
      {"bad bool",
       with_length(R"({"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})") + "\x01\x02",
       "at byte 64: \"w\" has a BOOL of 2"},
  };
  for (const Wrong& wrong : cases) {
    put(wrong.bytes);
    EXPECT_EQ(message_of([&] { (void)nn::read_safetensors(path()); }),
              path() + ": " + wrong.message)
        << wrong.what;
  }
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  nn::save_safetensors({{"a", from({1, 2, 3})}, {"b", ones({2, 2})}}, path(), {{"k", "v"}});
  const std::string whole = bytes_of(path());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    EXPECT_THAT(message_of([&] { (void)nn::read_safetensors(path()); }), HasSubstr("at byte "))
        << length;
  }
}

TEST_F(Safetensors, AFileThatIsNotThereIsSaidSo) {
  EXPECT_EQ(message_of([&] { (void)nn::read_safetensors(path("none")); }),
            path("none") + ": it cannot be opened: No such file or directory");
}

TEST_F(Safetensors, AFailedSaveLeavesWhatWasThere) {
  nn::save_safetensors({{"w", from({1, 2})}}, path());
  const std::string before = bytes_of(path());
  const World meta(World::Kind::kMeta);
  EXPECT_THAT(message_of([&] {
                nn::save_safetensors({{"w", zeros({2}, meta.f32())}}, path());
              }),
              EndsWith("and has no values"));
  EXPECT_THAT(message_of([&] {
                nn::save_safetensors({{"w", ones({2})}}, path("no/file"));
              }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(message_of([&] {
                nn::save_safetensors({{"w", ones({2})}, {"w", ones({2})}}, path());
              }),
              HasSubstr("the name \"w\" is taken"));
  EXPECT_EQ(bytes_of(path()), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "and nothing beside it";
}

// --- Modules
// --------------------------------------------------------------------------------------

TEST_F(Safetensors, AModuleComesBackWithItsBuffers) {
  nn::Sequential model;
  model.emplace<nn::Conv2d>(3, 4, 3);
  model.emplace<nn::BatchNorm2d>(4);
  (void)model(randn({2, 3, 8, 8}));
  nn::save(model, path(), {{"epoch", "1"}});

  nn::Sequential other;
  other.emplace<nn::Conv2d>(3, 4, 3);
  other.emplace<nn::BatchNorm2d>(4);
  other.to(kF64);
  const std::vector<Tensor> held = other.parameters();
  EXPECT_EQ(nn::load(other, path()), (nn::Metadata{{"epoch", "1"}}));
  const auto mine = model.named_tensors();
  const auto theirs = other.named_tensors();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(
        equal(mine[i].second.to(theirs[i].second.dtype()).detach(), theirs[i].second.detach()))
        << mine[i].first;
  }
  EXPECT_TRUE(held[0].is_same(other.parameters()[0]));
  EXPECT_TRUE(held[0].requires_grad());
}

TEST_F(Safetensors, NamesAndShapesThatDifferAreListedInOneLine) {
  nn::save_safetensors({{"weight", ones({2, 3})}, {"extra", ones({1})}}, path());
  nn::Linear layer(2, 2);
  const Tensor before = layer.weight.detach().clone();
  EXPECT_EQ(message_of([&] { nn::load(layer, path()); }),
            path() +
                ": missing: bias; unexpected: extra; shapes differ: weight is [2, 3], not "
                "[2, 2]");
  nn::save_safetensors({{"weight", ones({2, 2})}, {"extra", ones({1})}}, path());
  EXPECT_EQ(message_of([&] { nn::load(layer, path()); }),
            path() + ": missing: bias; unexpected: extra");
  EXPECT_TRUE(equal(layer.weight.detach(), before)) << "nothing was changed";
  nn::load(layer, path(), /*is_strict=*/false);
  EXPECT_TRUE(equal(layer.weight.detach(), ones({2, 2})));
}

}  // namespace
}  // namespace headroom
