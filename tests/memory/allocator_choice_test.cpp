#include "headroom/memory/allocator_choice.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/device/meta/meta_device.h"

namespace headroom::memory {
namespace {

using ::testing::HasSubstr;

TEST(AllocatorChoice, PagedIsTheDefault) {
  for (const char* text : {"", "page_mb:2", "per_process_memory_fraction:0.5", "backend:paged"}) {
    EXPECT_TRUE(parse_choice(text).value().paged) << text;
  }
  EXPECT_EQ(parse_choice("page_mb:2").value().paged->page_bytes, 2_MiB);
  EXPECT_EQ(parse_choice("per_process_memory_fraction:0.5").value().config.memory_fraction, 0.5);
}

TEST(AllocatorChoice, ABackendOrASettingOfPyTorchsMeansPyTorchs) {
  for (const char* text : {"backend:native",
                           "backend:cudaMallocAsync",
                           "max_split_size_mb:64",
                           "roundup_power2_divisions:[256:1,512:2]",
                           "per_process_memory_fraction:0.5,backend:native"}) {
    EXPECT_FALSE(parse_choice(text).value().paged) << text;
  }
  EXPECT_TRUE(parse_choice("expandable_segments:True").value().config.expandable_segments);
}

TEST(AllocatorChoice, ChangesKeepTheBackendThatWasChosenAndWhatIsNotNamed) {
  const AllocatorChoice native = parse_choice("backend:native").value();
  EXPECT_FALSE(parse_choice("", native).value().paged);
  const AllocatorChoice small = parse_choice("backend:paged,page_mb:2").value();
  EXPECT_EQ(parse_choice("cushion:0.1", small).value().paged->page_bytes, 2_MiB);
  EXPECT_FALSE(parse_choice("max_split_size_mb:64", small));
  const AllocatorChoice changed = parse_choice("backend:native", small).value();
  EXPECT_FALSE(changed.paged);
  EXPECT_EQ(changed.config.backend, "native");
  EXPECT_FALSE(parse_choice("max_split_size_mb:64", AllocatorChoice{}).value().paged);
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
  EXPECT_EQ(choice.paged->widest_cushion_fraction, 0.01) << "what somebody chose stays";
  EXPECT_EQ(choice.paged->cushion_bytes, 0U);
  EXPECT_FALSE(choice.paged->uses_magazines);
  EXPECT_EQ(choice.config.memory_fraction, 0.5);
  const PagedOptions wide = parse_paged_options("widest_cushion=0.3,cushion=0.05").value();
  EXPECT_EQ(wide.cushion_fraction, 0.05);
  EXPECT_EQ(wide.widest_cushion_fraction, 0.3);
}

TEST(AllocatorChoice, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"backend:pagedd", "allowed is native, cudaMallocAsync or paged"},
      {"backend:paged,max_split_size_mb:64", "paged has no setting 'max_split_size_mb'"},
      {"backend:paged,per_process_memory_fraction:2", "per_process_memory_fraction"},
      {"backend:paged,cushion:a", "cushion: found 'a'"},
      {"widest_cushion:2", "widest_cushion: found '2', allowed is a fraction from 0 to 1"},
      {"page_mb:2,max_split_size_mb:64", "paged has no setting 'max_split_size_mb'"},
      {"max_splat:1", "max_splat"}};
  for (const auto& [text, part] : cases) {
    const auto choice = parse_choice(text);
    ASSERT_FALSE(choice) << text;
    EXPECT_THAT(choice.error(), HasSubstr(part)) << text;
  }
}

// #22: one type, and one name for each of its values.
TEST(AllocatorChoice, NamesReadBackAsTheSameChoice) {
  for (const char* name : {"paged",
                           "paged:page_mb=2,cushion=0.01",
                           "paged:widest_cushion=0.3,magazines=0",
                           "paged:large_page_mb=64,large_from_mb=256,cushion_mb=0",
                           "paged:page_mb=2,per_process_memory_fraction:0.5",
                           "pytorch",
                           "pytorch:default",
                           "pytorch:expandable_segments:True",
                           "pytorch:max_split_size_mb:128,garbage_collection_threshold:0.8",
                           "pytorch:roundup_power2_divisions:[256:4,512:2,>:1]",
                           "pytorch:backend:cudaMallocAsync",
                           "cudaMallocAsync"}) {
    const auto choice = parse_choice_name(name);
    ASSERT_TRUE(choice) << name << ": " << choice.error();
    const auto again = parse_choice_name(to_string(*choice));
    ASSERT_TRUE(again) << to_string(*choice) << ": " << again.error();
    EXPECT_EQ(*again, *choice) << name << " is " << to_string(*choice);
    EXPECT_EQ(to_string(*again), to_string(*choice));
  }
  EXPECT_EQ(to_string(AllocatorChoice{}), "paged");
  EXPECT_EQ(parse_choice_name("pytorch")->kind(), AllocatorKind::kCaching);
  EXPECT_EQ(parse_choice_name("cudaMallocAsync")->kind(), AllocatorKind::kDriverPool);
  EXPECT_EQ(to_string(*parse_choice("expandable_segments:True")),
            "pytorch:expandable_segments:True");
}

TEST(AllocatorChoice, DifferentSettingsAreDifferentChoices) {
  const std::vector<std::string> names{"paged",
                                       "paged:page_mb=2",
                                       "paged:per_process_memory_fraction:0.5",
                                       "pytorch",
                                       "pytorch:expandable_segments:True",
                                       "cudaMallocAsync"};
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      EXPECT_EQ(*parse_choice_name(a) == *parse_choice_name(b), a == b) << a << " and " << b;
    }
  }
}

TEST(AllocatorChoice, NamesThatMeanNothingAreRefused) {
  for (const char* name :
       {"", "tcmalloc", "pagedd", "paged:page_mb=0", "pytorch:max_split_size:1"}) {
    EXPECT_FALSE(parse_choice_name(name)) << name;
  }
}

TEST(AllocatorChoice, MakesTheAllocatorThatWasChosen) {
  const auto device = device::MetaDevice::create({.capacity_bytes = 1_GiB});
  EXPECT_EQ(make_allocator(*device)->settings().kind(), AllocatorKind::kPaged);
  const auto caching = make_allocator(*device, parse_choice("backend:native").value());
  EXPECT_EQ(caching->settings().kind(), AllocatorKind::kCaching);
  const auto paged = make_allocator(
      *device, parse_choice("backend:paged,per_process_memory_fraction:0.5").value());
  EXPECT_EQ(paged->settings().kind(), AllocatorKind::kPaged);
  EXPECT_EQ(paged->limit(), 512_MiB);
}

TEST(AllocatorChoice, ADeviceWithoutVirtualMemoryHasPagedOnlyWhereItIsNamed) {
  device::BackendProfile profile;
  profile.has_virtual_memory = false;
  const auto device = device::MetaDevice::create({.profile = profile});
  EXPECT_EQ(make_allocator(*device)->settings().kind(), AllocatorKind::kCaching);
  EXPECT_THROW((void)make_allocator(*device, parse_choice("backend:paged").value()),
               InvalidArgument);
}

}  // namespace
}  // namespace headroom::memory
