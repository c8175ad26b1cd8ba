// The contenders that only a GPU has. The driver is opened at run time, like everywhere; what is
// needed of it is declared by hand, because cuda.h belongs to the device module.
#include <cstdint>
#include <dlfcn.h>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "headroom/base/env.h"
#include "headroom/base/error.h"

#include "benchmarks/alloc/allocator_plugin.h"
#include "benchmarks/contenders.h"

namespace headroom::cli {
namespace {

template <class Function>
Function find_symbol(void* library, const char* name) {
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) throw Error(fmt::format("the NVIDIA driver has no {}", name));
  return reinterpret_cast<Function>(found);
}

// The pool of the driver itself, told to keep all that is freed.
class DriverPool final : public Contender {
 public:
  // Throws Error when the driver has none.
  explicit DriverPool(int index) : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto get = find<int (*)(int*, int)>("cuDeviceGet");
    const auto retain = find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
    const auto get_pool = find<int (*)(void**, int)>("cuDeviceGetDefaultMemPool");
    const auto set = find<int (*)(void*, int, void*)>("cuMemPoolSetAttribute");
    release_ = find<int (*)(int)>("cuDevicePrimaryCtxRelease_v2");
    trim_ = find<int (*)(void*, std::size_t)>("cuMemPoolTrimTo");
    synchronize_ = find<int (*)()>("cuCtxSynchronize");
    set_current_ = find<int (*)(void*)>("cuCtxSetCurrent");
    allocate_ = find<int (*)(std::uint64_t*, std::size_t, void*)>("cuMemAllocAsync");
    free_ = find<int (*)(std::uint64_t, void*)>("cuMemFreeAsync");
    check(get(&device_, index), "cuDeviceGet");
    check(retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(set_current_(context_), "cuCtxSetCurrent");
    check(get_pool(&pool_, device_), "cuDeviceGetDefaultMemPool");
    constexpr int kReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    std::uint64_t everything = UINT64_MAX;
    check(set(pool_, kReleaseThreshold, &everything), "cuMemPoolSetAttribute");
  }
  DriverPool(const DriverPool&) = delete;
  DriverPool& operator=(const DriverPool&) = delete;
  ~DriverPool() override {
    (void)set_current_(context_);
    (void)synchronize_();
    (void)trim_(pool_, 0);
    (void)release_(device_);
  }

  [[nodiscard]] std::string name() const override { return "cudaMallocAsync / cudaFreeAsync"; }
  void enter_thread() override { check(set_current_(context_), "cuCtxSetCurrent"); }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    std::uint64_t address = 0;
    check(allocate_(&address, size_bytes, nullptr), "cuMemAllocAsync");
    return address;
  }
  void free(std::uint64_t address) override { check(free_(address, nullptr), "cuMemFreeAsync"); }

 private:
  template <class Function>
  Function find(const char* name) {
    return find_symbol<Function>(library_, name);
  }
  static void check(int result, const char* call) {
    if (result != 0) throw Error(fmt::format("{} failed with CUDA error {}", call, result));
  }

  void* library_;
  void* context_ = nullptr;
  void* pool_ = nullptr;
  int device_ = 0;
  int (*release_)(int) = nullptr;
  int (*trim_)(void*, std::size_t) = nullptr;
  int (*synchronize_)() = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*allocate_)(std::uint64_t*, std::size_t, void*) = nullptr;
  int (*free_)(std::uint64_t, void*) = nullptr;
};

// An allocator in a shared library.
class Plugin final : public Contender {
 public:
  // Throws Error with why not.
  Plugin(const std::string& path, int index) : index_(index) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Error(dlerror());
    using Entry = const HeadroomAllocatorPlugin* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, HEADROOM_ALLOCATOR_PLUGIN_SYMBOL));
    if (entry == nullptr) throw Error(fmt::format("{} is not an allocator plug-in", path));
    plugin_ = entry();
    if (plugin_->version != HEADROOM_ALLOCATOR_PLUGIN_VERSION) {
      throw Error(fmt::format("{} is of another version of headroom; build it again", path));
    }
    if (plugin_->open(index_) == 0) fail();
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() override { plugin_->empty_cache(); }

  [[nodiscard]] std::string name() const override { return plugin_->name(); }
  void enter_thread() override {
    if (plugin_->enter_thread(index_) == 0) fail();
  }
  std::uint64_t allocate(std::uint64_t size_bytes) override {
    void* address = plugin_->allocate(size_bytes);
    if (address == nullptr) fail();
    return reinterpret_cast<std::uint64_t>(address);
  }
  void free(std::uint64_t address) override {
    if (plugin_->free(reinterpret_cast<void*>(address)) == 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(fmt::format("{}: {}", plugin_->name(), plugin_->last_error()));
  }

  int index_;
  const HeadroomAllocatorPlugin* plugin_ = nullptr;
};

// Where HEADROOM_BENCH_TORCH says, or beside this program.
std::string torch_plugin_path() {
  if (auto path = env_string("HEADROOM_BENCH_TORCH")) return *std::move(path);
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (self.parent_path() / "libheadroom_bench_torch.so").string();
}

std::string why_no_torch(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return "";
  return fmt::format(
      "PyTorch's allocator is left out: {} is not there; configure with -DHEADROOM_TORCH=ON where "
      "python3 can import a CUDA build of torch",
      path);
}

}  // namespace

std::unique_ptr<Contender> open_driver_pool(int index) {
  return std::make_unique<DriverPool>(index);
}

void add_cuda_contenders(Contenders& contenders, int index) {
  try {
    contenders.all.push_back(open_driver_pool(index));
  } catch (const Error& error) {
    contenders.notes.push_back(fmt::format("cudaMallocAsync is left out: {}", error.what()));
  }
  const std::string path = torch_plugin_path();
  std::string why = why_no_torch(path);
  if (why.empty()) {
    try {
      contenders.all.push_back(std::make_unique<Plugin>(path, index));
      return;
    } catch (const Error& error) {
      why = fmt::format("PyTorch's allocator is left out: {}", error.what());
    }
  }
  contenders.notes.push_back(
      fmt::format("{}; ratios are to {}", why, contenders.all.back()->name()));
}

}  // namespace headroom::cli
