// What the cpu device reads about the machine, shown to it as folders of other machines.
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "headroom/base/bytes.h"
#include "headroom/device/cpu/internal/hierarchy.h"
#include "headroom/device/cpu/internal/machine.h"
#include "headroom/device/cpu/internal/room.h"

namespace headroom::device::internal {
namespace {

namespace fs = std::filesystem;

class Machine : public ::testing::Test {
 protected:
  Machine() {
    std::string pattern = fs::temp_directory_path() / "headroom-machine-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~Machine() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void write_cache(int processor,
                   int index,
                   const std::string& level,
                   const std::string& type,
                   const std::string& size,
                   const std::string& sharers) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(processor) +
                               "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level + "\n");
    write(folder + "type", type + "\n");
    write(folder + "size", size + "\n");
    write(folder + "coherency_line_size", "64\n");
    write(folder + "shared_cpu_list", sharers + "\n");
  }
  void write_meminfo() const {
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
  }

  fs::path root_;
};

// --- Memory ------------------------------------------------------------------------------------

TEST_F(Machine, HasTheMemoryTheKernelReports) {
  write_meminfo();
  const MachineMemory memory = read_machine_memory(root_);
  EXPECT_EQ(memory.total_bytes, 16_GiB);
  EXPECT_EQ(memory.available_bytes, 8_GiB);
}

TEST_F(Machine, OfAnEmptyFolderIsWhatTheSystemSays) {
  const MachineMemory memory = read_machine_memory(root_);
  EXPECT_GT(memory.total_bytes, 0U);
  EXPECT_EQ(memory.available_bytes, memory.total_bytes);
  EXPECT_EQ(resident_anonymous_bytes(root_), 0U);
}

TEST_F(Machine, IsBoundedByAContainerOfVersion2) {
  write_meminfo();
  write("proc/self/cgroup", "0::/jobs/seven\n");
  write("sys/fs/cgroup/jobs/seven/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(4_GiB) + "\n");
  write("sys/fs/cgroup/jobs/memory.current", std::to_string(3_GiB) + "\n");
  write("sys/fs/cgroup/jobs/memory.stat",
        "anon 1\nfile 5\ninactive_file " + std::to_string(1_GiB) + "\n");
  const MachineMemory memory = read_machine_memory(root_);
  EXPECT_EQ(memory.total_bytes, 4_GiB);
  EXPECT_EQ(memory.available_bytes, 2_GiB);
}

TEST_F(Machine, IsBoundedByAContainerOfVersion1) {
  write_meminfo();
  write("proc/self/cgroup", "7:cpu,cpuacct:/\n4:hugetlb,memory:/docker/abc\n0::/\n");
  // As seen from inside: the container's own group is mounted as the root.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(1_GiB) + "\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1_GiB) + "\n");
  const MachineMemory memory = read_machine_memory(root_);
  EXPECT_EQ(memory.total_bytes, 1_GiB);
  EXPECT_EQ(memory.available_bytes, 0U);
}

TEST_F(Machine, IgnoresALimitThatIsNone) {
  write_meminfo();
  write("proc/self/cgroup", "4:memory:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read_machine_memory(root_).total_bytes, 16_GiB);
}

TEST_F(Machine, ReadsPastGarbage) {
  write("proc/meminfo", "MemTotal: lots\n\n::\nMemAvailable");
  write("proc/self/cgroup", "nonsense\n:\n0::\n");
  EXPECT_GT(read_machine_memory(root_).total_bytes, 0U);
}

TEST(Room, LeavesAMargin) {
  const MachineMemory memory{.total_bytes = 32_GiB, .available_bytes = 10_GiB};
  EXPECT_EQ(room_margin_bytes(32_GiB), 1_GiB);
  EXPECT_EQ(room_margin_bytes(512_MiB), 32_MiB);
  EXPECT_EQ(spare_bytes(memory, 0), 9_GiB);
  EXPECT_EQ(spare_bytes(memory, 4_GiB), 5_GiB);
  EXPECT_EQ(spare_bytes(memory, 20_GiB), 0U);
}

// --- Hierarchy ---------------------------------------------------------------------------------

TEST_F(Machine, CountsCachesByWhoSharesThem) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary 9000\n");
  write_meminfo();
  for (int processor = 0; processor < 8; ++processor) {
    const std::string own = std::to_string(processor);
    const std::string pair = processor < 4 ? "0-3" : "4-7";
    write_cache(processor, 0, "1", "Data", "48K", own);
    write_cache(processor, 1, "1", "Instruction", "32K", own);
    write_cache(processor, 2, "2", "Unified", "2048K", own);
    write_cache(processor, 3, "3", "Unified", "32M", pair);
  }
  const CpuDescription cpu = describe_cpu({0, 1, 2, 3, 4, 5, 6, 7}, root_);
  EXPECT_EQ(cpu.name, "Imaginary 9000");
  EXPECT_EQ(cpu.cores, 8);
  ASSERT_EQ(cpu.hierarchy.size(), 4U);
  const MemoryLevel& l1 = cpu.hierarchy[0];
  EXPECT_EQ(l1.name, "L1d");
  EXPECT_EQ(l1.size_bytes, 48_KiB);
  EXPECT_EQ(l1.instances, 8);
  EXPECT_EQ(l1.line_bytes, 64U);
  EXPECT_EQ(l1.shared_by, "core");
  const MemoryLevel& l3 = cpu.hierarchy[2];
  EXPECT_EQ(l3.name, "L3");
  EXPECT_EQ(l3.size_bytes, 32_MiB);
  EXPECT_EQ(l3.instances, 2);
  EXPECT_EQ(l3.shared_by, "4 cores");
  EXPECT_EQ(cpu.hierarchy[3].name, "main memory");
  EXPECT_EQ(cpu.hierarchy[3].size_bytes, 16_GiB);
}

TEST_F(Machine, SeesOnlyTheProcessorsItMayUse) {
  for (int processor = 0; processor < 4; ++processor) {
    write_cache(processor, 0, "1", "Data", "32K", std::to_string(processor));
    write_cache(processor, 1, "2", "Unified", "1M", "0-3");
  }
  const CpuDescription cpu = describe_cpu({2}, root_);
  EXPECT_EQ(cpu.cores, 1);
  EXPECT_EQ(cpu.hierarchy[0].instances, 1);
  EXPECT_EQ(cpu.hierarchy[1].instances, 1);
}

TEST_F(Machine, IsDescribedEvenWhenNothingIsKnown) {
  const CpuDescription cpu = describe_cpu({0, 1}, root_);
  EXPECT_FALSE(cpu.name.empty());
  ASSERT_FALSE(cpu.hierarchy.empty());
  EXPECT_EQ(cpu.hierarchy.back().name, "main memory");
  for (const MemoryLevel& level : cpu.hierarchy) EXPECT_GT(level.size_bytes, 0U) << level.name;
}

TEST_F(Machine, SkipsCachesWithoutASize) {
  write_cache(0, 0, "1", "Data", "", "0");
  write_cache(0, 1, "2", "Unified", "many", "0");
  write_cache(0, 2, "3", "Unified", "8M", "");
  const CpuDescription cpu = describe_cpu({0}, root_);
  ASSERT_EQ(cpu.hierarchy.size(), 2U);
  EXPECT_EQ(cpu.hierarchy[0].name, "L3");
  EXPECT_EQ(cpu.hierarchy[0].shared_by, "core");
}

}  // namespace
}  // namespace headroom::device::internal
