// PyTorch's names over the process's own allocators. Those live as long as the process, so each
// test takes devices of its own: meta devices with indices nobody else uses.
#include "headroom/memory/api.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/meta/meta_device.h"
#include "headroom/device/registry.h"
#include "headroom/memory/buffer.h"

namespace headroom {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

using memory::Buffer;
using memory::OutOfMemory;

// A new card in the registry, current until the end of the test.
class Api : public ::testing::Test {
 protected:
  Api() : card_(add_card()) { set_device(card_); }
  ~Api() override { set_device("cpu:0"); }

  static device::DeviceId add_card() {
    static int next = 0;
    return device::registry()
        .add(device::MetaDevice::create({.index = next++, .capacity_bytes = 16_GiB}))
        .id();
  }

  device::DeviceId card_;
};

TEST_F(Api, NothingIsAllocatedAtFirst) {
  EXPECT_EQ(memory_allocated(), 0U);
  EXPECT_EQ(memory_reserved(), 0U);
  EXPECT_EQ(max_memory_allocated(), 0U);
  EXPECT_EQ(max_memory_reserved(), 0U);
  EXPECT_THAT(memory_stats(), IsEmpty());
  EXPECT_THAT(memory_summary(), HasSubstr("PyTorch CUDA memory summary"));
  EXPECT_EQ(mem_get_info().free_bytes, 16_GiB);
  EXPECT_EQ(mem_get_info().total_bytes, 16_GiB);
  EXPECT_EQ(memory_account().sum(), 16_GiB);
  EXPECT_EQ(memory_account().used(), 0U);
  EXPECT_THAT(memory_stats(), IsEmpty());  // asking makes no allocator
}

TEST_F(Api, OneDeviceHasOneAllocatorWhateverItsSpelling) {
  EXPECT_EQ(&allocator("cpu"), &allocator("cpu:0"));
  EXPECT_EQ(&allocator("cpu:00"), &allocator("cpu:0"));
}

TEST_F(Api, CountsAsTorchCudaDoes) {
  Buffer kept(allocator(), 4_MiB);
  {
    const Buffer passing(allocator(), 8_MiB);
    EXPECT_EQ(memory_allocated(), 12_MiB);
  }
  EXPECT_EQ(memory_allocated(), 4_MiB);
  EXPECT_EQ(memory_reserved(), 12_MiB);
  EXPECT_EQ(max_memory_allocated(), 12_MiB);
  EXPECT_EQ(memory_stats().at("allocated_bytes.all.peak"), 12 << 20);
  EXPECT_EQ(memory_stats().at("active.all.current"), 1);
  EXPECT_EQ(mem_get_info().free_bytes, 16_GiB - 12_MiB);
  EXPECT_EQ(memory_account().cached(), 8_MiB);
  EXPECT_EQ(memory_account().sum(), 16_GiB);
  reset_peak_memory_stats();
  EXPECT_EQ(max_memory_allocated(), 4_MiB);
  EXPECT_EQ(max_memory_reserved(), 12_MiB);
  reset_accumulated_memory_stats();
  EXPECT_EQ(memory_stats().at("allocated_bytes.all.allocated"), 0);
  EXPECT_LT(memory_summary({}, true).size(), memory_summary().size());
  kept.reset();
  empty_cache();
  EXPECT_EQ(memory_reserved(), 0U);
}

TEST_F(Api, EmptyCacheEmptiesEveryDevice) {
  const device::DeviceId other = add_card();
  { const Buffer here(allocator(), 4_MiB), there(allocator(other), 4_MiB); }
  EXPECT_EQ(memory_reserved(), 4_MiB);
  EXPECT_EQ(memory_reserved(other), 4_MiB);
  empty_cache();
  EXPECT_EQ(memory_reserved(), 0U);
  EXPECT_EQ(memory_reserved(other), 0U);
}

// --- Which device --------------------------------------------------------------------------------

TEST_F(Api, ADeviceCanBeNamedInManyWays) {
  const Buffer block(allocator(), 4_MiB);
  const std::string name = to_string(card_);
  EXPECT_EQ(memory_allocated(), 4_MiB);
  EXPECT_EQ(memory_allocated(card_.index), 4_MiB);  // of the current kind
  EXPECT_EQ(memory_allocated(card_), 4_MiB);
  EXPECT_EQ(memory_allocated(name.c_str()), 4_MiB);
  EXPECT_EQ(memory_allocated(name), 4_MiB);
  EXPECT_EQ(&allocator(), &allocator(name));
  EXPECT_EQ(&allocator().device(), *device::registry().find(card_));
  set_device("cpu");
  EXPECT_EQ(memory_allocated(0), memory_allocated("cpu:0"));
  EXPECT_EQ(memory_allocated(card_), 4_MiB);
}

TEST_F(Api, AWrongDeviceIsRefusedAndChangesNothing) {
  EXPECT_THAT([] { set_device(4711); },
              ThrowsMessage<InvalidArgument>(HasSubstr("meta:4711 does not exist")));
  EXPECT_THAT([] { set_device("tpu"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("'tpu' names no device")));
  EXPECT_THAT([] { (void)memory_allocated("cpu:63"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("HEADROOM_CPU_DEVICES=64")));
  EXPECT_THROW(set_device(-1), InvalidArgument);
  EXPECT_THROW((void)allocator(""), InvalidArgument);
  EXPECT_THROW((void)memory_account(std::string("meta:")), InvalidArgument);
  EXPECT_EQ(current_device(), card_);
}

TEST_F(Api, CountsTheDevicesOfTheCurrentKind) {
  const int cards = device_count();
  EXPECT_EQ(cards, device::registry().count(device::DeviceKind::kMeta));
  (void)add_card();
  EXPECT_EQ(device_count(), cards + 1);
  set_device("cpu");
  EXPECT_EQ(device_count(), device::registry().count(device::DeviceKind::kCpu));
}

TEST_F(Api, EachThreadHasItsOwnCurrentDevice) {
  const device::DeviceId other = add_card();
  std::thread([&] {
    // Where threads start: the first GPU, or the processor where there is none.
    const bool has_gpu = device::registry().why_none(device::DeviceKind::kCuda).empty();
    EXPECT_EQ(current_device().kind,
              has_gpu ? device::DeviceKind::kCuda : device::DeviceKind::kCpu);
    set_device(other);
    EXPECT_EQ(current_device(), other);
  }).join();
  EXPECT_EQ(current_device(), card_);
}

// --- Limits and settings -------------------------------------------------------------------------

TEST_F(Api, AFractionBoundsTheProcess) {
  set_per_process_memory_fraction(0.25);
  EXPECT_EQ(get_per_process_memory_fraction(), 0.25);
  const Buffer held(allocator(), 3_GiB);
  EXPECT_THAT([] { Buffer(allocator(), 2_GiB); },
              ThrowsMessage<OutOfMemory>(HasSubstr("raise the limit of 4GiB to at least 5GiB")));
  EXPECT_EQ(memory_stats().at("num_ooms"), 1);
  for (const double wrong : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT([wrong] { set_per_process_memory_fraction(wrong); },
                ThrowsMessage<InvalidArgument>(HasSubstr("must be from 0 to 1")));
  }
  EXPECT_EQ(get_per_process_memory_fraction(), 0.25);
  const device::DeviceId other = add_card();
  EXPECT_EQ(get_per_process_memory_fraction(other), 1.0);  // a device's own
  set_per_process_memory_fraction(1.0, card_);
  const Buffer more(allocator(), 2_GiB);
}

// What is current holds for the process, so these run in one of their own.
std::string name_of_new_card(int index) {
  device::registry().add(device::MetaDevice::create({.index = index}));
  return "meta:" + std::to_string(index);
}

bool is_expandable_on(int index) {
  const Buffer block(allocator(name_of_new_card(index)), 4_MiB);
  return block.allocator()->segments().at(0).is_expandable;
}

int exit_with_pytorchs_settings() {
  set_allocator_settings("backend:native");
  memory::Allocator& first = allocator(name_of_new_card(1000));
  if (first.settings().paged) return 20;
  set_allocator_settings("expandable_segments:True");  // of the one there is and of later ones
  const Buffer here(first, 4_MiB);
  if (!first.segments().at(0).is_expandable || !is_expandable_on(1001)) return 21;
  try {
    set_allocator_settings("expandable_segments:False,max_splitsize_mb:64");
    return 22;
  } catch (const InvalidArgument& error) {
    std::fputs(error.what(), stderr);
  }
  if (!is_expandable_on(1002)) return 23;  // nothing of it was taken
  set_allocator_settings("expandable_segments:False");
  return is_expandable_on(1003) ? 24 : 0;
}

TEST(ApiDeathTest, SettingsReachEveryAllocatorAlsoLaterOnes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      std::exit(exit_with_pytorchs_settings()), ExitedWithCode(0), "set_allocator_settings: ");
}

TEST_F(Api, SettingsOfPyTorchsAllocatorAreNoneOfThePagedOnes) {
  EXPECT_TRUE(allocator().settings().paged);
  EXPECT_THAT([] { set_allocator_settings("expandable_segments:True"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("HEADROOM_ALLOC_CONF=backend:native")));
  set_allocator_settings("per_process_memory_fraction:1.0");  // both have it
  EXPECT_TRUE(allocator().settings().paged);
}

TEST_F(Api, ADeviceWithoutVirtualMemoryGetsPyTorchsAllocator) {
  device::BackendProfile profile;
  profile.has_virtual_memory = false;
  device::registry().add(device::MetaDevice::create({.index = 1004, .profile = profile}));
  EXPECT_FALSE(allocator("meta:1004").settings().paged);
}

// In a process of its own: what these allocators keep would be there for every later test.
int exit_with_addresses() {
  for (const int index : {1010, 1011}) {
    device::registry().add(device::CpuDevice::create({.index = index, .capacity_bytes = 64_MiB}));
  }
  memory::Allocator& first = allocator("cpu:1010");
  memory::Allocator& second = allocator("cpu:1011");
  const memory::Buffer large(first, 5_MiB);
  const memory::Buffer small(second, 5_KiB);
  if (find_allocator(large.address() + 1_MiB) != &first) return 10;
  if (find_allocator(small.address() + 100) != &second) return 11;
  return find_allocator(1) == nullptr ? 0 : 12;
}

TEST(ApiDeathTest, AnAddressLeadsToItsAllocator) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(exit_with_addresses()), ExitedWithCode(0), "");
}

// The environment is read once, so each case is a process of its own.
int exit_with_settings(const char* variable, const char* value) {
  setenv(variable, value, 1);
  try {
    device::registry().add(device::MetaDevice::create({.index = 1000}));
    const Buffer block(allocator("meta:1000"), 4_MiB);
    if (block.allocator()->settings().paged) return 13;
    return block.allocator()->segments().at(0).is_expandable ? 10 : 11;
  } catch (const InvalidArgument& error) {
    std::fputs(error.what(), stderr);
    return 12;
  }
}

// Before the first allocation the backend may be chosen, and after it no more.
int exit_with_changes() {
  device::registry().add(device::MetaDevice::create({.index = 1000}));
  set_allocator_settings("page_mb:2");
  if (allocator("meta:1000").settings().kind() != memory::AllocatorKind::kPaged) return 10;
  try {
    set_allocator_settings("backend:native");
  } catch (const InvalidArgument& error) {
    std::fputs(error.what(), stderr);
  }
  try {
    set_allocator_settings("page_mb:4");
  } catch (const InvalidArgument& error) {
    std::fputs(error.what(), stderr);
    return 11;
  }
  return 12;
}

// #21: they read from address 0.
TEST_F(Api, ANullPointerNamesNothing) {
  const char* const none = nullptr;
  EXPECT_THROW((void)allocator(none), InvalidArgument);
  EXPECT_THROW((void)allocator(nullptr), InvalidArgument);
  EXPECT_THROW(set_device(none), InvalidArgument);
  EXPECT_THROW((void)memory_allocated(none), InvalidArgument);
  EXPECT_THROW((void)max_memory_allocated(none), InvalidArgument);
  EXPECT_THROW((void)memory_reserved(none), InvalidArgument);
  EXPECT_THROW((void)memory_stats(none), InvalidArgument);
  EXPECT_THROW((void)memory_summary(none), InvalidArgument);
  EXPECT_THROW((void)memory_account(none), InvalidArgument);
  EXPECT_THROW(set_per_process_memory_fraction(0.5, none), InvalidArgument);
  EXPECT_THROW((void)mem_get_info(none), InvalidArgument);
  EXPECT_THROW(set_allocator_settings(none), InvalidArgument);
  EXPECT_THROW(set_allocator_settings(nullptr), InvalidArgument);
}

TEST(ApiDeathTest, TheBackendIsChosenBeforeTheFirstAllocation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(exit_with_changes()),
              ExitedWithCode(11),
              "the backend is chosen before.*keeps the settings it was made with");
}

TEST(ApiDeathTest, TheEnvironmentSetsUpTheAllocators) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* variable, const char* value) {
    std::exit(exit_with_settings(variable, value));
  };
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", "expandable_segments:True"), ExitedWithCode(10), "");
  EXPECT_EXIT(run("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), ExitedWithCode(10), "");
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", ""), ExitedWithCode(13), "");
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", "backend:native"), ExitedWithCode(11), "");
  EXPECT_EXIT(run("PYTORCH_ALLOC_CONF", "max_split_size_mb:64"), ExitedWithCode(11), "");
  EXPECT_EXIT(run("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.5"), ExitedWithCode(13), "");
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", "backend:paged,page_mb:2"), ExitedWithCode(13), "");
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", "backend:paged,page:2"),
              ExitedWithCode(12),
              "HEADROOM_ALLOC_CONF: backend:paged: paged has no setting 'page'");
  EXPECT_EXIT(
      run("HEADROOM_ALLOC_CONF", "expandable:True"), ExitedWithCode(12), "HEADROOM_ALLOC_CONF");
}

// The exit code of exit_with_settings(), for a program that ignores PyTorch's variables.
int exit_without_pytorch(const char* variable, const char* value) {
  setenv(variable, value, 1);
  for (const std::string& name : ignore_pytorch_variables()) std::fputs(name.c_str(), stderr);
  (void)ignore_pytorch_variables();  // once more changes nothing
  return exit_with_settings(variable, value);
}

TEST(ApiDeathTest, WhereTheyAreIgnoredPyTorchsVariablesSetUpNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* variable, const char* value) {
    std::exit(exit_without_pytorch(variable, value));
  };
  EXPECT_EXIT(run("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
              ExitedWithCode(13),
              "^PYTORCH_CUDA_ALLOC_CONF$");
  EXPECT_EXIT(run("PYTORCH_ALLOC_CONF", "nonsense"), ExitedWithCode(13), "^PYTORCH_ALLOC_CONF$");
  EXPECT_EXIT(run("HEADROOM_ALLOC_CONF", "expandable_segments:True"), ExitedWithCode(10), "^$");
}

TEST_F(Api, PyTorchsVariablesAreNotIgnoredOnceTheyWereRead) {
  (void)allocator().allocate(512);
  EXPECT_THAT([] { (void)ignore_pytorch_variables(); },
              ThrowsMessage<Error>(HasSubstr("has read the environment before")));
}

}  // namespace
}  // namespace headroom
