// The only file that knows how Python keeps its frames: CPython 3.9 to 3.14, without PyTorch.
//
// An allocation asks for the stack before it takes a lock of the allocator's, so the order is
// always GIL, then ours. A stack that was seen before costs a walk over its frames and one look
// into a table: the key is the code objects with the instructions they are at, and the table holds
// a reference to each of them, so that no other code can come to lie at its address.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "bindings/pytorch/bridge/recordings.h"
#include "bindings/pytorch/bridge/seen_stacks.h"
#include "bindings/pytorch/torch_stacks.h"

namespace headroom_torch {

namespace bridge = headroom::bridge;

namespace {

constexpr std::size_t kMostFrames = 256;  // from the innermost
// When this many code objects are held, or words of stacks, all are let go of: a program that makes
// its code as it runs has no end of them. What was interned keeps its number.
constexpr std::size_t kMostCodes = 16'384;
constexpr std::size_t kMostWords = std::size_t{1} << 22U;

// --- What differs between versions of Python -----------------------------------------------------

bool is_finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// The byte in the code that the frame is at.
int instruction_of(PyFrameObject* frame) noexcept {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#elif PY_VERSION_HEX >= 0x030A0000
  return frame->f_lasti < 0 ? -1 : frame->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT));
#else
  return frame->f_lasti;
#endif
}

// Whether this thread is in Python code. Only the thread itself changes that, so it may look
// without the GIL: threads of autograd rarely are, and need not wait.
bool is_in_python(const PyThreadState* thread) noexcept {
#if PY_VERSION_HEX >= 0x030F0000
  return thread != nullptr;
#elif PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame != nullptr;
#elif PY_VERSION_HEX >= 0x030B0000
  return thread->cframe->current_frame != nullptr;
#else
  return thread->frame != nullptr;
#endif
}

// --- Who may ask Python --------------------------------------------------------------------------

std::atomic<bool> g_is_open{false};  // NOLINT(readability-identifier-naming)
std::atomic<int> g_waiting{0};       // NOLINT(readability-identifier-naming)  threads, for the GIL
thread_local bool t_is_walking = false;  // NOLINT(readability-identifier-naming)

// The GIL, where this thread gets it. A thread that waits for the GIL while Python ends would never
// come back, so Python's end waits for those that wait.
class Gil {
 public:
  Gil() noexcept {
    is_waiting_ = PyGILState_Check() == 0;
    if (is_waiting_) g_waiting.fetch_add(1);
    has_it_ = g_is_open.load();
    if (has_it_) state_ = PyGILState_Ensure();
    if (is_waiting_) g_waiting.fetch_sub(1);
  }
  ~Gil() {
    if (has_it_) PyGILState_Release(state_);
  }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

  [[nodiscard]] bool has_it() const noexcept { return has_it_; }

 private:
  bool is_waiting_ = false;
  bool has_it_ = false;
  PyGILState_STATE state_{};
};

// Called by Python's atexit, with the GIL.
PyObject* close(PyObject*, PyObject*) {
  g_is_open.store(false);
  Py_BEGIN_ALLOW_THREADS;
  while (g_waiting.load() != 0) std::this_thread::yield();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

// --- Stacks --------------------------------------------------------------------------------------

// Two words a frame: the code object and the instruction.
using Words = std::array<std::uint64_t, 2 * kMostFrames>;

std::span<const std::uint64_t> walk_into(Words& words) noexcept {
  std::size_t count = 0;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr && count < words.size()) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    words[count++] = reinterpret_cast<std::uintptr_t>(code);
    words[count++] = static_cast<std::uint64_t>(instruction_of(frame));
    Py_DECREF(code);  // the frame is being run, and has it
    PyFrameObject* const outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return std::span(words).first(count);
}

std::string_view text_of(PyObject* text) noexcept {
  Py_ssize_t size = 0;
  const char* const bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes != nullptr) return {bytes, static_cast<std::size_t>(size)};
  PyErr_Clear();
  return "?";
}

std::uint32_t number_of_line(std::uint64_t code_word, std::uint64_t instruction) {
  auto* const code = reinterpret_cast<PyCodeObject*>(code_word);
  return bridge::intern_line(
      {.name = text_of(code->co_name),
       .file = text_of(code->co_filename),
       .line = PyCode_Addr2Line(code, static_cast<int>(static_cast<std::int64_t>(instruction)))});
}

// The numbers of stacks that were seen. All that it is asked happens with the GIL; its mutex is for
// a Python without one, and no call of Python's is made while it is held.
class Seen {
 public:
  static Seen& instance() {
    static Seen& seen = *new Seen;  // never destroyed: what it holds is Python's
    return seen;
  }

  std::uint32_t number_of(std::span<const std::uint64_t> words) {
    const std::uint64_t hash = bridge::SeenStacks::hash_of(words);
    {
      const std::lock_guard lock(mutex_);
      const std::uint32_t known = stacks_.find(words, hash);
      if (known != bridge::SeenStacks::kUnknown) return known;
    }
    const std::uint32_t number = ask_python(words);
    const std::vector<PyObject*> let_go = keep(words, hash, number);
    for (PyObject* const code : let_go) Py_DECREF(code);
    return number;
  }

 private:
  static std::uint32_t ask_python(std::span<const std::uint64_t> words) {
    std::vector<std::uint32_t> lines;
    lines.reserve(words.size() / 2);
    for (std::size_t i = 0; i < words.size(); i += 2) {
      lines.push_back(number_of_line(words[i], words[i + 1]));
    }
    return bridge::intern_stack(lines);
  }

  // Returns the code objects that were held and are not any more.
  std::vector<PyObject*> keep(std::span<const std::uint64_t> words,
                              std::uint64_t hash,
                              std::uint32_t number) {
    std::vector<PyObject*> let_go;
    const std::lock_guard lock(mutex_);
    if (codes_.size() > kMostCodes || stacks_.words() > kMostWords) {
      let_go.assign(codes_.begin(), codes_.end());
      codes_.clear();
      stacks_.clear();
    }
    if (stacks_.find(words, hash) != bridge::SeenStacks::kUnknown) return let_go;
    for (std::size_t i = 0; i < words.size(); i += 2) {
      auto* const code = reinterpret_cast<PyObject*>(words[i]);
      if (codes_.insert(code).second) Py_INCREF(code);
    }
    stacks_.add(words, hash, number);
    return let_go;
  }

  std::mutex mutex_;
  bridge::SeenStacks stacks_;
  std::unordered_set<PyObject*> codes_;
};

// With the GIL. Whatever error Python is telling stays as it is.
std::uint32_t number_of_this_stack() noexcept {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  std::uint32_t number = 0;
  try {
    Words words;  // filled as far as it is used
    const std::span<const std::uint64_t> stack = walk_into(words);
    if (!stack.empty()) number = Seen::instance().number_of(stack);
  } catch (const std::exception&) {  // No memory: this one goes without.
    number = 0;
  }
  PyErr_Restore(type, value, trace);
  return number;
}

std::uint32_t walk() {
  // Collecting garbage, which a walk may start, can run code that allocates.
  if (t_is_walking || !g_is_open.load(std::memory_order_relaxed)) return 0;
  if (Py_IsInitialized() == 0 || is_finalizing()) return 0;
  const PyThreadState* const thread = PyGILState_GetThisThreadState();
  if (thread == nullptr || !is_in_python(thread)) return 0;  // a thread that Python does not know
  const Gil gil;
  if (!gil.has_it()) return 0;
  t_is_walking = true;
  const std::uint32_t number = number_of_this_stack();
  t_is_walking = false;
  return number;
}

PyMethodDef g_close = {  // NOLINT(readability-identifier-naming)
    "headroom_close_stacks",
    &close,
    METH_NOARGS,
    nullptr};

bool call_at_exit() {
  PyObject* const atexit = PyImport_ImportModule("atexit");
  if (atexit == nullptr) return false;
  PyObject* const function = PyCFunction_New(&g_close, nullptr);
  PyObject* const done =
      function == nullptr ? nullptr : PyObject_CallMethod(atexit, "register", "O", function);
  Py_XDECREF(done);
  Py_XDECREF(function);
  Py_DECREF(atexit);
  return done != nullptr;
}

}  // namespace

bool walk_python_stacks() {
  static bool is_told_of_the_end = false;  // with the GIL
  if (!is_told_of_the_end) {
    if (!call_at_exit()) return false;
    is_told_of_the_end = true;
    g_is_open.store(true);
    bridge::set_stack_walker(&walk);
  }
  return true;
}

}  // namespace headroom_torch
