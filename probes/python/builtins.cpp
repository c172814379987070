// SPDX-License-Identifier: BSD-3-Clause
// What torch calls for every parameter of every step, as built-in functions of Python: the hook on
// gradients, and the look at many tensors. A function in Python would take several times as long as
// the work.
//
// These few functions of Python's stable ABI are found in the process that loads this library, so
// one build serves every CPython from 3.8, and none is needed to build it.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/record/probe_api.h"

extern "C" {
typedef struct _object PyObject;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
struct PyMethodDef {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
};
#define DDPD_PYTHON extern __attribute__((weak))
DDPD_PYTHON PyObject _Py_NoneStruct;
DDPD_PYTHON PyObject _Py_TrueStruct;
DDPD_PYTHON PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
DDPD_PYTHON PyObject* PyObject_GetAttr(PyObject*, PyObject* name);
DDPD_PYTHON PyObject* PyObject_CallMethodObjArgs(PyObject*, PyObject* name, ...);
DDPD_PYTHON PyObject* PyUnicode_InternFromString(const char*);
DDPD_PYTHON PyObject* PyLong_FromLong(long);
DDPD_PYTHON long PyLong_AsLong(PyObject*);
DDPD_PYTHON void* PyLong_AsVoidPtr(PyObject*);
DDPD_PYTHON PyObject* PyList_New(std::ptrdiff_t);
DDPD_PYTHON std::ptrdiff_t PyList_Size(PyObject*);
DDPD_PYTHON PyObject* PyList_GetItem(PyObject*, std::ptrdiff_t);
DDPD_PYTHON int PyList_Append(PyObject*, PyObject*);
DDPD_PYTHON std::ptrdiff_t PyTuple_Size(PyObject*);
DDPD_PYTHON PyObject* PyTuple_GetItem(PyObject*, std::ptrdiff_t);
DDPD_PYTHON void PyErr_Clear(void);
DDPD_PYTHON int PyErr_ExceptionMatches(PyObject*);
DDPD_PYTHON PyObject* PyExc_Exception;
DDPD_PYTHON void Py_IncRef(PyObject*);
DDPD_PYTHON void Py_DecRef(PyObject*);
DDPD_PYTHON PyObject* PyEval_SaveThread(void);
DDPD_PYTHON void PyEval_RestoreThread(PyObject*);
}

namespace {

// ---- what Python shares: ctypes structures of the same layout (tensors.py, forwards.py,
// backwards.py)

struct Wrapper {
  std::int32_t arrived;  // gradients in the current backward, and
  std::int32_t reduced;  // those of the reducer's parameters
  std::int32_t armed;
};

struct Backwards {
  void* record;
  PyObject* self;  // borrowed: the object of which this is a part
  Wrapper* const* wrappers;
  std::int64_t wrapper_count;
  std::int64_t number;   // of backwards
  std::int64_t look_ns;  // spent in looks at gradients
  std::int32_t what;     // to take from them
  std::int32_t looks;    // at the gradients of this backward
  std::int32_t fresh;
  std::int32_t unwrapped_arrived;
  std::int32_t reduces;  // the program has called a collective in a backward
};

struct Entry {
  Backwards* backwards;
  PyObject* dtype;  // borrowed: torch keeps its dtypes
  std::int64_t numel;
  std::int64_t arrivals;
  std::int64_t last_backward;
  std::int32_t id;
  std::int32_t in_wrapper;  // -1: in none
  std::int32_t indexed;     // its wrapper's reducer reduces it
  std::int32_t placed;      // the tensor is more than this rank's part
};

constexpr std::int64_t kSmall = 16384;  // elements that are read in microseconds: the GIL is kept

// ---- Python

class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {
    if (object == nullptr) PyErr_Clear();
  }
  ~Owned() {
    if (object_ != nullptr) Py_DecRef(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const { return object_; }
  bool is_none() const { return object_ == &_Py_NoneStruct; }
  bool is_true() const { return object_ == &_Py_TrueStruct; }

 private:
  PyObject* object_;
};

PyObject* none() {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

// Made once, by a thread that holds the GIL; never freed.
PyObject* name_of(const char* text) { return PyUnicode_InternFromString(text); }

struct Names {
  PyObject* address = name_of("address");
  PyObject* grad = name_of("grad");
  PyObject* dtype = name_of("dtype");
  PyObject* is_cpu = name_of("is_cpu");
  PyObject* layout = name_of("layout");
  PyObject* numel = name_of("numel");
  PyObject* is_contiguous = name_of("is_contiguous");
  PyObject* data_ptr = name_of("data_ptr");
  PyObject* begins_reduction = name_of("begins_reduction");
  PyObject* unwrapped_arrives = name_of("unwrapped_arrives");
  PyObject* examine_local = name_of("examine_local");
  PyObject* parameter = name_of("parameter");
};
const Names& names() {
  static const Names all;
  return all;
}

// False where the user interrupted it; other exceptions of the probe do not reach the program.
bool call(PyObject* object, PyObject* method, std::int64_t argument) {
  const Owned number(PyLong_FromLong(static_cast<long>(argument)));
  PyObject* result = PyObject_CallMethodObjArgs(object, method, number.get(), nullptr);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  const Owned released(result);
  return true;
}

// Of an integer in Python; -1 if it is none.
std::int64_t number_of(PyObject* object) {
  const std::int64_t number = PyLong_AsLong(object);
  if (number == -1) PyErr_Clear();
  return number;
}

// ---- looks

PyObject* strided = nullptr;  // torch.strided

// Contiguous memory of the CPU that matches the entry's description; otherwise false.
bool memory_of(const Entry& entry, PyObject* tensor, const void*& data) {
  const auto& name = names();
  if (entry.placed != 0) return false;
  if (Owned(PyObject_GetAttr(tensor, name.dtype)).get() != entry.dtype) return false;
  if (!Owned(PyObject_GetAttr(tensor, name.is_cpu)).is_true()) return false;
  if (Owned(PyObject_GetAttr(tensor, name.layout)).get() != strided) return false;
  const auto ask = [&](PyObject* method) {
    return PyObject_CallMethodObjArgs(tensor, method, nullptr);
  };
  const Owned numel(ask(name.numel));
  if (numel.get() == nullptr || number_of(numel.get()) != entry.numel) return false;
  if (!Owned(ask(name.is_contiguous)).is_true()) return false;
  const Owned pointer(ask(name.data_ptr));
  if (pointer.get() == nullptr) return false;
  data = PyLong_AsVoidPtr(pointer.get());
  PyErr_Clear();
  return true;
}

bool look(const Backwards& backwards, const Entry& entry, PyObject* gradient) {
  const void* data = nullptr;
  if (gradient == nullptr || !memory_of(entry, gradient, data)) return false;
  if (data == nullptr && entry.numel != 0) return true;  // its storage was freed
  auto* record = static_cast<ddpd_record*>(backwards.record);
  constexpr int kLocal = 0;
  PyObject* thread = entry.numel > kSmall ? PyEval_SaveThread() : nullptr;
  const int failed = ddpd_observe(record, kLocal, backwards.what, 1, &entry.id, &data);
  if (thread != nullptr) PyEval_RestoreThread(thread);
  return failed == 0;
}

// ---- the hook

// `gradient`: gives it. False where the user interrupted it.
template <class Gradient>
bool arrives(Entry& entry, bool defined, const Gradient& gradient) {
  Backwards& backwards = *entry.backwards;
  const auto& name = names();
  if (defined) {
    backwards.fresh = 1;
    ++entry.arrivals;
    entry.last_backward = backwards.number;
  }
  if (entry.indexed == 0) {
    backwards.unwrapped_arrived = 1;
    if ((backwards.looks != 0 || backwards.reduces != 0) &&
        !call(backwards.self, name.unwrapped_arrives, entry.id))
      return false;
  }
  if (entry.in_wrapper < 0 || entry.in_wrapper >= backwards.wrapper_count) return true;
  Wrapper& wrapper = *backwards.wrappers[entry.in_wrapper];
  ++wrapper.arrived;
  wrapper.reduced += entry.indexed;
  if (wrapper.armed == 0) return true;
  if (wrapper.arrived == 1 && !call(backwards.self, name.begins_reduction, entry.in_wrapper))
    return false;
  if (entry.indexed == 0 || backwards.looks == 0) return true;
  const auto begin = std::chrono::steady_clock::now();
  const bool seen = look(backwards, entry, gradient());
  backwards.look_ns += (std::chrono::steady_clock::now() - begin).count();
  return seen || call(backwards.self, name.examine_local, entry.id);
}

// Torch calls it with the parameter, after its gradient was accumulated. `self`: the address of an
// Entry.
PyObject* gradient_arrived(PyObject* self, PyObject* parameter) {
  const Owned gradient(PyObject_GetAttr(parameter, names().grad));
  const bool defined = gradient.get() != nullptr && !gradient.is_none();
  auto& entry = *static_cast<Entry*>(PyLong_AsVoidPtr(self));
  return arrives(entry, defined, [&] { return gradient.get(); }) ? none() : nullptr;
}

// The same before torch 2.1: with what came out of the AccumulateGrad node, and what went into it.
PyObject* gradient_accumulated(PyObject* self, PyObject* arguments) {
  PyObject* last = PyTuple_GetItem(arguments, PyTuple_Size(arguments) - 1);
  PyObject* given = last == nullptr ? nullptr : PyTuple_GetItem(last, 0);
  if (given == nullptr) PyErr_Clear();
  PyObject* found = nullptr;
  auto& entry = *static_cast<Entry*>(PyLong_AsVoidPtr(self));
  const bool defined = given != nullptr && given != &_Py_NoneStruct;
  const bool goes_on = arrives(entry, defined, [&] {
    const Owned parameter(PyObject_CallMethodObjArgs(self, names().parameter, nullptr));
    if (parameter.get() != nullptr) found = PyObject_GetAttr(parameter.get(), names().grad);
    return found;
  });
  const Owned gradient(found);
  return goes_on ? none() : nullptr;
}

// ---- many tensors

// Of the address of a record: (stage, what, [(entry, tensor), ...]). Returns the pairs that are
// left to the caller, or 1 where the record could not be written.
PyObject* observe(PyObject* self, PyObject* arguments) {
  auto* record = static_cast<ddpd_record*>(PyLong_AsVoidPtr(self));
  const auto stage = static_cast<int>(PyLong_AsLong(PyTuple_GetItem(arguments, 0)));
  const auto what = static_cast<int>(PyLong_AsLong(PyTuple_GetItem(arguments, 1)));
  PyObject* pairs = PyTuple_GetItem(arguments, 2);
  PyObject* left = PyList_New(0);
  const auto count = static_cast<std::size_t>(PyList_Size(pairs));
  std::vector<std::int32_t> ids;
  std::vector<const void*> memory;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* pair = PyList_GetItem(pairs, static_cast<std::ptrdiff_t>(i));
    const Owned address(PyObject_GetAttr(PyTuple_GetItem(pair, 0), names().address));
    const auto& entry = *static_cast<const Entry*>(PyLong_AsVoidPtr(address.get()));
    const void* data = nullptr;
    if (!memory_of(entry, PyTuple_GetItem(pair, 1), data)) {
      PyList_Append(left, pair);
    } else if (data != nullptr || entry.numel == 0) {  // null: its storage was freed
      ids.push_back(entry.id);
      memory.push_back(data);
    }
  }
  PyObject* thread = PyEval_SaveThread();
  const int failed = ids.empty()
                         ? 0
                         : ddpd_observe(record, stage, what, static_cast<std::int64_t>(ids.size()),
                                        ids.data(), memory.data());
  PyEval_RestoreThread(thread);
  if (failed == 0) return left;
  Py_DecRef(left);
  return PyLong_FromLong(1);
}

constexpr int kArguments = 1;  // METH_VARARGS
constexpr int kOne = 8;        // METH_O
PyMethodDef methods[] = {
    {"gradient_arrived", gradient_arrived, kOne, nullptr},
    {"gradient_accumulated", gradient_accumulated, kArguments, nullptr},
    {"observe", observe, kArguments, nullptr},
};

}  // namespace

// Bytes of a shared structure, for the test that both sides agree.
extern "C" std::int64_t ddpd_size_of(const char* name) {
  const std::string_view wanted = name;
  return wanted == "Entry"     ? sizeof(Entry)
         : wanted == "Wrapper" ? sizeof(Wrapper)
                               : sizeof(Backwards);
}

// The built-in function `name` with its `self`; null for another name. `layout`: torch.strided.
extern "C" PyObject* ddpd_builtin(const char* name, PyObject* self, PyObject* layout) {
  strided = layout;
  for (auto& method : methods) {
    if (std::string_view(method.name) == name) return PyCFunction_NewEx(&method, self, nullptr);
  }
  return nullptr;
}
