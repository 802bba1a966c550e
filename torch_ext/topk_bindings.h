#pragma once

#include <torch/csrc/utils/pybind.h>

#include "torch_ext/process_group_taco.h"

namespace taco {

using GroupClass =
    pybind11::class_<ProcessGroupTaco, c10d::Backend, c10::intrusive_ptr<ProcessGroupTaco>>;
using OptionsClass = pybind11::class_<ProcessGroupTaco::Options, c10d::Backend::Options,
                                      c10::intrusive_ptr<ProcessGroupTaco::Options>>;

// What Python sees of TopK: methods of the group, its options, and the selection by itself.
void bindTopk(pybind11::module_& module, GroupClass& group, OptionsClass& options);

}  // namespace taco
