#include "headroom/memory/allocator_choice.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/device/meta/meta_device.h"

namespace headroom::memory {
namespace {

using ::testing::HasSubstr;

TEST(AllocatorChoice, WithoutABackendItIsPyTorchs) {
  EXPECT_FALSE(parse_choice("").value().paged);
  const AllocatorChoice choice = parse_choice("expandable_segments:True").value();
  EXPECT_FALSE(choice.paged);
  EXPECT_TRUE(choice.config.expandable_segments);
}

TEST(AllocatorChoice, PagedHasSettingsOfItsOwnAndTheCommonOnes) {
  const AllocatorChoice plain = parse_choice("backend:paged").value();
  ASSERT_TRUE(plain.paged);
  EXPECT_EQ(plain.paged->page_bytes, PagedOptions{}.page_bytes);
  EXPECT_EQ(plain.config.backend, "paged");
  const AllocatorChoice choice =
      parse_choice(
          " page_mb:2, large_page_mb=64 ,backend:paged,large_from_mb:512,cushion:0.01,cushion_mb:0,"
          "magazines:0,per_process_memory_fraction:0.5")
          .value();
  ASSERT_TRUE(choice.paged);
  EXPECT_EQ(choice.paged->page_bytes, 2_MiB);
  EXPECT_EQ(choice.paged->large_page_bytes, 64_MiB);
  EXPECT_EQ(choice.paged->large_from_bytes, 512_MiB);
  EXPECT_EQ(choice.paged->cushion_fraction, 0.01);
  EXPECT_EQ(choice.paged->cushion_bytes, 0U);
  EXPECT_FALSE(choice.paged->uses_magazines);
  EXPECT_EQ(choice.config.memory_fraction, 0.5);
}

TEST(AllocatorChoice, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"backend:pagedd", "allowed is native, cudaMallocAsync or paged"},
      {"backend:paged,max_split_size_mb:64", "paged has no setting 'max_split_size_mb'"},
      {"backend:paged,per_process_memory_fraction:2", "per_process_memory_fraction"},
      {"backend:paged,cushion:a", "cushion: found 'a'"},
      {"max_splat:1", "max_splat"}};
  for (const auto& [text, part] : cases) {
    const auto choice = parse_choice(text);
    ASSERT_FALSE(choice) << text;
    EXPECT_THAT(choice.error(), HasSubstr(part)) << text;
  }
}

TEST(AllocatorChoice, MakesTheAllocatorThatWasChosen) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  const auto caching = make_allocator(*device, parse_choice("").value());
  EXPECT_EQ(caching->policy(), "pytorch");
  const auto paged = make_allocator(
      *device, parse_choice("backend:paged,per_process_memory_fraction:0.5").value());
  EXPECT_EQ(paged->policy(), "paged");
  EXPECT_EQ(paged->limit(), 512_MiB);
}

}  // namespace
}  // namespace headroom::memory
