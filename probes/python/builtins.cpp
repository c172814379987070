// SPDX-License-Identifier: BSD-3-Clause
// What is done for every parameter of every step, as built-in functions of Python: the hook on
// gradients, the looks at many tensors, and how they were used. A function in Python would take
// several times as long as the work.
//
// These few functions of Python's stable ABI are found in the process that loads this library, so
// one build serves every CPython from 3.8, and none is needed to build it.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/recorder/probe_api.h"
#include "lib/recorder/probe_record.h"

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
DDPD_PYTHON PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
DDPD_PYTHON PyObject* PyObject_GetItem(PyObject*, PyObject* key);
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
DDPD_PYTHON PyObject* PyTuple_Pack(std::ptrdiff_t, ...);
DDPD_PYTHON void PyErr_Clear(void);
DDPD_PYTHON int PyErr_ExceptionMatches(PyObject*);
DDPD_PYTHON PyObject* PyExc_Exception;
DDPD_PYTHON void Py_IncRef(PyObject*);
DDPD_PYTHON void Py_DecRef(PyObject*);
DDPD_PYTHON PyObject* PyEval_SaveThread(void);
DDPD_PYTHON void PyEval_RestoreThread(PyObject*);
}

namespace {

using ddp_doctor::Parameter;
using ddp_doctor::Reach;

// ---- what Python shares: ctypes structures of the same layout (entry.py, backwards.py)

struct Backwards {
  ddpd_record* record;   // null: closed
  PyObject* self;        // borrowed: the object of which this is a part
  std::int64_t look_ns;  // spent in looks at gradients
};

struct Entry {
  Parameter parameter;
  Backwards* backwards;
  PyObject* dtype;   // borrowed: torch keeps its dtypes
  PyObject* tensor;  // borrowed, while a function here works with it
  bool placed;       // the tensor is more than this rank's part
};

const Entry& entry_of(const Parameter& parameter) {
  return reinterpret_cast<const Entry&>(parameter);
}

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
  bool is_none() const { return object_ == nullptr || object_ == &_Py_NoneStruct; }
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
  PyObject* ref = name_of("ref");
  PyObject* grad = name_of("grad");
  PyObject* dtype = name_of("dtype");
  PyObject* is_cpu = name_of("is_cpu");
  PyObject* layout = name_of("layout");
  PyObject* numel = name_of("numel");
  PyObject* is_contiguous = name_of("is_contiguous");
  PyObject* data_ptr = name_of("data_ptr");
  PyObject* version = name_of("_version");
  PyObject* requires_grad = name_of("requires_grad");
  PyObject* reach = name_of("reach");
  PyObject* has_gradient = name_of("has_gradient");
  PyObject* examine_local = name_of("examine_local");
  PyObject* parameter = name_of("parameter");
  PyObject* module = name_of("module");
  PyObject* parameters = name_of("_parameters");
  PyObject* attribute = name_of("attribute");
  PyObject* pointer = name_of("pointer");
  PyObject* is_changed = name_of("is_changed");
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
  if (entry.placed) return false;
  if (Owned(PyObject_GetAttr(tensor, name.dtype)).get() != entry.dtype) return false;
  if (!Owned(PyObject_GetAttr(tensor, name.is_cpu)).is_true()) return false;
  if (Owned(PyObject_GetAttr(tensor, name.layout)).get() != strided) return false;
  const auto ask = [&](PyObject* method) {
    return PyObject_CallMethodObjArgs(tensor, method, nullptr);
  };
  const Owned numel(ask(name.numel));
  if (numel.get() == nullptr || number_of(numel.get()) != entry.parameter.numel) return false;
  if (!Owned(ask(name.is_contiguous)).is_true()) return false;
  const Owned pointer(ask(name.data_ptr));
  if (pointer.get() == nullptr) return false;
  data = PyLong_AsVoidPtr(pointer.get());
  PyErr_Clear();
  return true;
}

constexpr int kLocal = 0, kWeightBefore = 6;  // stages of record.h

// While others may run, if it takes longer.
bool look_at(ddpd_record* record, int stage, int what, const std::vector<std::int32_t>& ids,
             const std::vector<const void*>& memory, bool is_quick) {
  if (ids.empty()) return true;
  PyObject* thread = is_quick ? nullptr : PyEval_SaveThread();
  const int failed = ddpd_observe(record, stage, what, static_cast<std::int64_t>(ids.size()),
                                  ids.data(), memory.data());
  if (thread != nullptr) PyEval_RestoreThread(thread);
  return failed == 0;
}

bool look(const Backwards& backwards, const Entry& entry, PyObject* gradient) {
  const void* data = nullptr;
  const Parameter& parameter = entry.parameter;
  if (gradient == nullptr || !memory_of(entry, gradient, data)) return false;
  if (data == nullptr && parameter.numel != 0) return true;  // its storage was freed
  return look_at(backwards.record, kLocal, backwards.record->what_of_gradients(), {parameter.id},
                 {data}, parameter.numel <= kSmall);
}

// ---- the hook

// `gradient`: gives it. False where the user interrupted it.
template <class Gradient>
bool arrives(Entry& entry, bool defined, const Gradient& gradient) {
  Backwards& backwards = *entry.backwards;
  if (backwards.record == nullptr) return true;
  try {
    if (!backwards.record->gradient_arrives(entry.parameter, defined)) return true;
  } catch (...) {  // no memory left: the program will notice it, too
    return true;
  }
  const auto begin = std::chrono::steady_clock::now();
  const bool seen = look(backwards, entry, gradient());
  backwards.look_ns += (std::chrono::steady_clock::now() - begin).count();
  return seen || call(backwards.self, names().examine_local, entry.parameter.id);
}

// Torch calls it with the parameter, after its gradient was accumulated. `self`: the address of an
// Entry.
PyObject* gradient_arrived(PyObject* self, PyObject* parameter) {
  const Owned gradient(PyObject_GetAttr(parameter, names().grad));
  const bool defined = !gradient.is_none();
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

PyObject* argument(PyObject* arguments, std::ptrdiff_t index) {
  return PyTuple_GetItem(arguments, index);
}

long number_at(PyObject* arguments, std::ptrdiff_t index) {
  return PyLong_AsLong(argument(arguments, index));
}

Entry& entry_at(PyObject* entry) {
  const Owned address(PyObject_GetAttr(entry, names().address));
  return *static_cast<Entry*>(PyLong_AsVoidPtr(address.get()));
}

// What is looked at: in lists of (entry, tensor), or of entries alone.
enum class Of { kPair = 0, kTensor = 1, kGradient = 2 };

// The entry's tensor, or its gradient; none where there is none.
PyObject* tensor_of(PyObject* entry, Of of) {
  const Owned reference(PyObject_GetAttr(entry, names().ref));
  if (reference.get() == nullptr) return nullptr;
  PyObject* tensor = PyObject_CallFunctionObjArgs(reference.get(), nullptr);
  if (of == Of::kTensor || tensor == nullptr || tensor == &_Py_NoneStruct) return tensor;
  const Owned parameter(tensor);
  return PyObject_GetAttr(tensor, names().grad);
}

// Every write in place counts it up, except through `.data`.
std::int64_t version_of(PyObject* tensor) {
  const Owned version(PyObject_GetAttr(tensor, names().version));  // tensors of inference have none
  return version.get() == nullptr ? -1 : number_of(version.get());
}

struct Looks {
  std::vector<std::int32_t> ids;
  std::vector<const void*> memory;
  void add(const Entry& entry, const void* data) {
    ids.push_back(entry.parameter.id);
    memory.push_back(data);
  }
};

// Calls `each(entry, tensor, data)` for everything in the list whose tensor is plain memory that is
// there. Returns a list of the other (entry, tensor).
template <class Each>
PyObject* for_plain(PyObject* items, Of of, const Each& each) {
  PyObject* left = PyList_New(0);
  for (std::ptrdiff_t i = 0; i < PyList_Size(items); ++i) {
    PyObject* item = PyList_GetItem(items, i);
    PyObject* owner = of == Of::kPair ? PyTuple_GetItem(item, 0) : item;
    const Owned made(of == Of::kPair ? none() : tensor_of(owner, of));
    PyObject* tensor = of == Of::kPair ? PyTuple_GetItem(item, 1) : made.get();
    if (of != Of::kPair && made.is_none()) continue;
    Entry& entry = entry_at(owner);
    const void* data = nullptr;
    if (!memory_of(entry, tensor, data)) {
      PyList_Append(left, Owned(PyTuple_Pack(2, owner, tensor)).get());
    } else if (data != nullptr || entry.parameter.numel == 0) {  // null: its storage was freed
      each(entry, tensor, data);
    }
  }
  return left;
}

PyObject* left_or_failed(PyObject* left, bool is_written) {
  if (is_written) return left;
  Py_DecRef(left);
  return PyLong_FromLong(1);
}

// Of the address of a record: (stage, what, list, Of, step). Returns the pairs that are left to the
// caller, or 1 where the record could not be written. `step`: these are its weights at its end; -1:
// of none.
PyObject* observe(PyObject* self, PyObject* arguments) {
  auto* record = static_cast<ddpd_record*>(PyLong_AsVoidPtr(self));
  const long step = number_at(arguments, 4);
  Looks looks;
  PyObject* left = for_plain(argument(arguments, 2), static_cast<Of>(number_at(arguments, 3)),
                             [&](Entry& entry, PyObject* tensor, const void* data) {
                               looks.add(entry, data);
                               if (step < 0) return;
                               const auto address = reinterpret_cast<std::intptr_t>(data);
                               entry.parameter.was_seen(step, version_of(tensor), address);
                             });
  return left_or_failed(
      left, look_at(record, static_cast<int>(number_at(arguments, 0)),
                    static_cast<int>(number_at(arguments, 1)), looks.ids, looks.memory, false));
}

// Likewise (entries): weights before an optimizer's step; the whole of those that something else
// wrote, or that are new.
PyObject* observe_before_step(PyObject* self, PyObject* entries) {
  auto* record = static_cast<ddpd_record*>(PyLong_AsVoidPtr(self));
  Looks all, written;
  const auto look = [&](Entry& entry, PyObject* tensor, const void* data) {
    all.add(entry, data);
    const auto address = reinterpret_cast<std::intptr_t>(data);
    if (!entry.parameter.is_written(record->schedule.number(), version_of(tensor), address)) return;
    entry.parameter.began = true;
    written.add(entry, data);
  };
  PyObject* left = for_plain(entries, Of::kTensor, look);
  return left_or_failed(
      left, look_at(record, kWeightBefore, DDPD_SAMPLE, all.ids, all.memory, false) &&
                look_at(record, kWeightBefore, DDPD_DIGEST, written.ids, written.memory, false));
}

// ---- what the program puts in the place of a parameter

// The object now at the entry's place in its module; a new reference, or none.
PyObject* live(PyObject* entry) {
  const auto& name = names();
  const Owned reference(PyObject_GetAttr(entry, name.module));
  if (reference.is_none()) return nullptr;
  const Owned module(PyObject_CallFunctionObjArgs(reference.get(), nullptr));
  if (module.is_none()) return nullptr;
  const Owned table(PyObject_GetAttr(module.get(), name.parameters));
  const Owned attribute(PyObject_GetAttr(entry, name.attribute));
  if (table.get() == nullptr || attribute.get() == nullptr) return nullptr;
  return PyObject_GetItem(table.get(), attribute.get());
}

bool is_changed(PyObject* entry, bool placed) {
  const auto& name = names();
  if (placed) return Owned(PyObject_CallMethodObjArgs(entry, name.is_changed, nullptr)).is_true();
  const Owned now(live(entry)), known(tensor_of(entry, Of::kTensor));
  if (!now.is_none() && now.get() != known.get()) return true;
  if (known.is_none()) return false;
  const Owned address(PyObject_CallMethodObjArgs(known.get(), name.data_ptr, nullptr));
  const Owned before(PyObject_GetAttr(entry, name.pointer));
  const std::int64_t there = address.get() == nullptr ? 0 : number_of(address.get());
  return there != number_of(before.get());
}

// Of nothing: (entries, wrapper): whether one of its parameters is a different object, or at a
// different address, than when it was last followed.
PyObject* changed(PyObject*, PyObject* arguments) {
  PyObject* entries = argument(arguments, 0);
  const long wrapper = number_at(arguments, 1);
  for (std::ptrdiff_t i = 0; i < PyList_Size(entries); ++i) {
    const Entry& entry = entry_at(PyList_GetItem(entries, i));
    if (entry.parameter.in_wrapper != wrapper || !entry.parameter.is_parameter) continue;
    if (is_changed(PyList_GetItem(entries, i), entry.placed)) return PyLong_FromLong(1);
  }
  return PyLong_FromLong(0);
}

// ---- use

// What a method of `self` says of a parameter, by its id; 0 where it fails.
long asked(PyObject* self, PyObject* method, const Parameter& parameter) {
  const Owned id(PyLong_FromLong(parameter.id));
  const Owned answer(PyObject_CallMethodObjArgs(self, method, id.get(), nullptr));
  return answer.get() == nullptr ? 0 : static_cast<long>(number_of(answer.get()));
}

// Of a Usage (usage.py): (optimizer, entries), for the step that ends.
PyObject* usages(PyObject* self, PyObject* arguments) {
  const Owned address(PyObject_GetAttr(self, names().address));
  auto* record = static_cast<ddpd_record*>(PyLong_AsVoidPtr(address.get()));
  PyObject* entries = argument(arguments, 1);
  std::deque<Owned> tensors;  // as long as they are asked
  std::vector<const Parameter*> parameters;
  for (std::ptrdiff_t i = 0; i < PyList_Size(entries); ++i) {
    Entry& entry = entry_at(PyList_GetItem(entries, i));
    entry.tensor = tensors.emplace_back(tensor_of(PyList_GetItem(entries, i), Of::kTensor)).get();
    parameters.push_back(&entry.parameter);
  }
  const auto is_known = [](long flags, int known, int value) {
    return (flags & known) != 0 ? std::optional((flags & value) != 0) : std::nullopt;
  };
  const ddp_doctor::ParameterView view{
      .reach =
          [&](const Parameter& parameter) {
            const long flags = asked(self, names().reach, parameter);
            return Reach{is_known(flags, 1, 2), is_known(flags, 4, 8)};
          },
      .requires_grad =
          [](const Parameter& parameter) {
            PyObject* tensor = entry_of(parameter).tensor;
            if (tensor == nullptr || tensor == &_Py_NoneStruct) return parameter.trainable;  // gone
            return Owned(PyObject_GetAttr(tensor, names().requires_grad)).is_true();
          },
      .has_gradient =
          [&](const Parameter& parameter) {
            return asked(self, names().has_gradient, parameter) != 0;
          },
      .has_any_gradient =
          [](const Parameter& parameter) {
            PyObject* tensor = entry_of(parameter).tensor;
            return tensor != nullptr && !Owned(PyObject_GetAttr(tensor, names().grad)).is_none();
          }};
  try {
    record->set_usages_of(static_cast<int>(number_at(arguments, 0)), parameters, view);
  } catch (...) {  // no memory left: the step has none
  }
  return none();
}

constexpr int kArguments = 1;  // METH_VARARGS
constexpr int kOne = 8;        // METH_O
PyMethodDef methods[] = {
    {"gradient_arrived", gradient_arrived, kOne, nullptr},
    {"gradient_accumulated", gradient_accumulated, kArguments, nullptr},
    {"observe", observe, kArguments, nullptr},
    {"observe_before_step", observe_before_step, kOne, nullptr},
    {"changed", changed, kArguments, nullptr},
    {"usages", usages, kArguments, nullptr},
};

}  // namespace

// Bytes of a shared structure, for the test that both sides agree.
extern "C" std::int64_t ddpd_size_of(const char* name) {
  const std::string_view wanted = name;
  return wanted == "Entry" ? sizeof(Entry) : wanted == "Row" ? sizeof(ddpd_row) : sizeof(Backwards);
}

// The built-in function `name` with its `self`; null for another name. `layout`: torch.strided.
extern "C" PyObject* ddpd_builtin(const char* name, PyObject* self, PyObject* layout) {
  strided = layout;
  for (auto& method : methods) {
    if (std::string_view(method.name) == name) return PyCFunction_NewEx(&method, self, nullptr);
  }
  return nullptr;
}
