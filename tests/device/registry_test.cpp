#include "headroom/device/registry.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/device/cpu/cpu_device.h"
#include "headroom/device/cuda/cuda_device.h"

namespace headroom::device {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::vector<Device*> cpu_devices(const Registry& registry) {
  std::vector<Device*> found = registry.devices();
  std::erase_if(found, [](Device* device) { return device->id().kind != DeviceKind::kCpu; });
  return found;
}

std::string why_not() {
  try {
    const auto made = Registry::from_environment();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it was made";
}

TEST(Registry, HasOneCpuDeviceByDefault) {
  const Variable devices("HEADROOM_CPU_DEVICES", "");  // empty is unset
  const auto made = Registry::from_environment();
  EXPECT_EQ(made->count(DeviceKind::kCpu), 1);
  Device* device = made->find("cpu").value();
  EXPECT_EQ(to_string(device->id()), "cpu:0");
  EXPECT_EQ(made->why_none(DeviceKind::kCpu), "");
}

TEST(Registry, TakesCountAndCapacityFromTheEnvironment) {
  const Variable devices("HEADROOM_CPU_DEVICES", "3");
  const Variable capacity("HEADROOM_CPU_CAPACITY", "1.5MiB");
  const auto made = Registry::from_environment();
  EXPECT_EQ(made->count(DeviceKind::kCpu), 3);
  for (Device* device : cpu_devices(*made)) {
    EXPECT_EQ(device->memory_info().value().total_bytes, 1536_KiB);
  }
  EXPECT_EQ(made->find("cpu:2").value()->id().index, 2);
}

TEST(Registry, DividesHalfOfTheMachineAmongTheDevices) {
  const Variable devices("HEADROOM_CPU_DEVICES", "4");
  const auto made = Registry::from_environment();
  std::uint64_t sum = 0;
  for (Device* device : cpu_devices(*made)) sum += device->properties().total_bytes;
  EXPECT_LE(sum, CpuDevice::machine_memory_bytes() / 2);
  EXPECT_GT(sum, CpuDevice::machine_memory_bytes() / 2 - 16_MiB);
}

TEST(Registry, NamesTheVariableThatHoldsGarbage) {
  struct Case {
    const char* name;
    const char* value;
  };
  for (const Case& bad : {Case{"HEADROOM_CPU_DEVICES", "many"},
                          Case{"HEADROOM_CPU_DEVICES", "0"},
                          Case{"HEADROOM_CPU_DEVICES", "-1"},
                          Case{"HEADROOM_CPU_DEVICES", "1000000"},
                          Case{"HEADROOM_CPU_CAPACITY", "plenty"},
                          Case{"HEADROOM_CPU_CAPACITY", "20MB"},
                          Case{"HEADROOM_CPU_CAPACITY", "0"},
                          Case{"HEADROOM_CPU_CAPACITY", "1EiB"}}) {
    const Variable variable(bad.name, bad.value);
    const std::string message = why_not();
    EXPECT_THAT(message, StartsWith(bad.name)) << bad.value;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  const Variable variable("HEADROOM_CPU_CAPACITY", "1EiB");
  EXPECT_THAT(why_not(), AllOf(HasSubstr("1EiB"), HasSubstr("more than this machine's")));
}

TEST(Registry, SaysWhichDevicesThereAre) {
  const Variable unset("HEADROOM_CPU_DEVICES", "");
  const auto one = Registry::from_environment();
  EXPECT_EQ(one->find("cpu:3").error(),
            "cpu:3 does not exist: there is one cpu device, cpu:0; HEADROOM_CPU_DEVICES=4 makes "
            "four");
  EXPECT_EQ(one->find("cpu:70").error(),
            "cpu:70 does not exist: there is one cpu device, cpu:0; HEADROOM_CPU_DEVICES makes up "
            "to 64");
  const Variable devices("HEADROOM_CPU_DEVICES", "3");
  const auto three = Registry::from_environment();
  EXPECT_EQ(three->find("cpu:12").error(),
            "cpu:12 does not exist: there are three cpu devices, cpu:0, cpu:1 and cpu:2; "
            "HEADROOM_CPU_DEVICES=13 makes 13");
  EXPECT_THAT(three->find("meta").error(), HasSubstr("MetaDevice::create"));
  EXPECT_THAT(three->find("gpu").error(), HasSubstr("'gpu' names no device"));
}

TEST(Registry, HasTheGpusOrSaysInOneLineWhyThereAreNone) {
  const auto made = Registry::from_environment();
  ASSERT_EQ(made->count(DeviceKind::kCuda), CudaDevice::count());
  const std::string why = CudaDevice::why_none();
  EXPECT_EQ(made->why_none(DeviceKind::kCuda), why);
  if (CudaDevice::count() > 0) {
    EXPECT_EQ(why, "");
    EXPECT_EQ(to_string(made->find("cuda").value()->id()), "cuda:0");
    EXPECT_EQ(Registry().why_none(DeviceKind::kCuda), "no cuda device was added to this registry");
    EXPECT_THAT(CudaDevice::create({.index = 1000}).error(), HasSubstr("cuda:1000 does not exist"));
    return;
  }
  // What a machine may lack, from the build to the card.
  EXPECT_THAT(why,
              AnyOf("this build has no cuda backend (cuda.h was not found when it was built)",
                    "no NVIDIA driver on this machine (libcuda.so.1 not found)",
                    StartsWith("the NVIDIA driver cannot be loaded ("),
                    StartsWith("the NVIDIA driver is too old ("),
                    StartsWith("libcuda.so.1 is the toolkit's stub"),
                    StartsWith("the NVIDIA driver does not start ("),
                    "the driver found no GPU"));
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_EQ(made->find("cuda:0").error(), "cuda:0 does not exist: " + why);
  EXPECT_EQ(CudaDevice::create().error(), why);
}

TEST(Registry, TakesAnIdOnce) {
  Registry made;
  EXPECT_THAT(made.find("cpu:0").error(), HasSubstr("cpu:0 does not exist"));
  Device& device = made.add(CpuDevice::create({.index = 5, .capacity_bytes = 1_MiB}));
  EXPECT_EQ(made.find("cpu:5").value(), &device);
  EXPECT_THROW(made.add(CpuDevice::create({.index = 5, .capacity_bytes = 1_MiB})), InvalidArgument);
  EXPECT_EQ(made.devices().size(), 1U);
}

TEST(Registry, IsOneForTheProcessAndForAllThreads) {
  std::vector<Registry*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (Registry*& place : seen) threads.emplace_back([&place] { place = &registry(); });
  }
  for (Registry* place : seen) EXPECT_EQ(place, &registry());
}

}  // namespace
}  // namespace headroom::device
