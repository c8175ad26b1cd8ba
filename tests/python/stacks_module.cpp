// A Python module for stacks_test.py: the bridge with the cpu device for a GPU, and the walker of
// Python's stacks, without PyTorch.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/pytorch/bridge/bridge.h"
#include "bindings/pytorch/bridge/recordings.h"
#include "bindings/pytorch/torch_stacks.h"

namespace {

namespace bridge = headroom::bridge;

void configure() {
  static const auto ignored = bridge::configure({.device_kind = "cpu"});
  (void)ignored;
}

bridge::DeviceMemory& memory() {
  configure();
  return bridge::device_memory(0);
}

// Without the GIL, as PyTorch does; an error becomes Python's.
template <class Function>
PyObject* without_gil(const Function& function) {
  std::string error;
  std::uint64_t result = 0;
  Py_BEGIN_ALLOW_THREADS;
  try {
    result = function();
  } catch (const std::runtime_error& thrown) {
    error = thrown.what();
  }
  Py_END_ALLOW_THREADS;
  if (error.empty()) return PyLong_FromUnsignedLongLong(result);
  PyErr_SetString(PyExc_RuntimeError, error.c_str());
  return nullptr;
}

std::uint64_t take_block(unsigned long long size) {
  return reinterpret_cast<std::uintptr_t>(memory().allocate(size, 0, true));
}

PyObject* start(PyObject*, PyObject* arguments) {
  const char* path = nullptr;
  unsigned long long max_bytes = 0;
  int has_stacks = 0;
  if (PyArg_ParseTuple(arguments, "sKp", &path, &max_bytes, &has_stacks) == 0) return nullptr;
  if (has_stacks != 0 && !headroom_torch::walk_python_stacks()) return nullptr;
  return without_gil([&] {
    configure();
    bridge::record_start(0, path, max_bytes, has_stacks != 0);
    return 0;
  });
}

PyObject* stop(PyObject*, PyObject*) {
  return without_gil([] {
    bridge::record_stop(0);
    return 0;
  });
}

PyObject* take(PyObject*, PyObject* size) {
  const unsigned long long bytes = PyLong_AsUnsignedLongLong(size);
  return without_gil([&] { return take_block(bytes); });
}

PyObject* take_with_gil(PyObject*, PyObject* size) {
  return PyLong_FromUnsignedLongLong(take_block(PyLong_AsUnsignedLongLong(size)));
}

PyObject* give(PyObject*, PyObject* address) {
  auto* const block = reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(address));
  return without_gil([&] { return bridge::free_block(block) ? 1 : 0; });
}

// Threads that Python does not know, while the caller keeps the GIL: none of them may want it.
PyObject* take_on_other_threads(PyObject*, PyObject* count) {
  std::vector<std::thread> threads;
  for (unsigned long long i = PyLong_AsUnsignedLongLong(count); i > 0; --i) {
    threads.emplace_back([] {
      for (int round = 0; round < 100; ++round) {
        (void)bridge::free_block(reinterpret_cast<void*>(take_block(3000)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Py_RETURN_NONE;
}

// Nanoseconds of a block that is taken and given back, as PyTorch does it: without the GIL.
PyObject* take_and_give(PyObject*, PyObject* count) {
  const unsigned long long rounds = PyLong_AsUnsignedLongLong(count);
  return without_gil([&] {
    for (unsigned long long i = 0; i < rounds; ++i) {
      (void)bridge::free_block(reinterpret_cast<void*>(take_block(512 << (i % 12))));
    }
    return rounds;
  });
}

PyMethodDef g_methods[] = {  // NOLINT(modernize-avoid-c-arrays,readability-identifier-naming)
    {"start", &start, METH_VARARGS, nullptr},
    {"stop", &stop, METH_NOARGS, nullptr},
    {"take", &take, METH_O, nullptr},
    {"take_with_gil", &take_with_gil, METH_O, nullptr},
    {"give", &give, METH_O, nullptr},
    {"take_on_other_threads", &take_on_other_threads, METH_O, nullptr},
    {"take_and_give", &take_and_give, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef g_module = {  // NOLINT(readability-identifier-naming)
    PyModuleDef_HEAD_INIT,
    "headroom_stacks_test",
    nullptr,
    -1,
    g_methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr};

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name that Python looks for
PyMODINIT_FUNC PyInit_headroom_stacks_test() { return PyModule_Create(&g_module); }
