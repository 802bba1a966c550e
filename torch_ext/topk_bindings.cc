#include "torch_ext/topk_bindings.h"

#include <ATen/ops/empty.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "csrc/base/format.h"
#include "csrc/settings/settings.h"
#include "csrc/topk/payload.h"
#include "csrc/topk/select.h"
#include "csrc/topk/warmup.h"
#include "torch_ext/errors.h"
#include "torch_ext/exact.h"
#include "torch_ext/tensors.h"

namespace py = pybind11;

namespace taco {
namespace {

using Group = ProcessGroupTaco;
using WithoutGil = py::call_guard<py::gil_scoped_release>;

// An argument of torch_taco.Options as the environment variable that it stands for.
void set(Group::Options& options, const char* argument, const char* variable,
         const py::object& value) {
  if (value.is_none()) return;
  std::string text = py::str(value).cast<std::string>();
  if (py::isinstance<py::bool_>(value)) text = value.cast<bool>() ? "1" : "0";
  try {
    readSettings({{variable, text}});
  } catch (const Error&) {
    throw py::value_error(str("torch_taco.Options: ", argument, " is ",
                              py::repr(value).cast<std::string>(), ", but must be ",
                              validValues(variable)));
  }
  options.settings[variable] = text;
}

c10::intrusive_ptr<Group::Options> makeOptions(Millis timeout, const py::object& topk,
                                               const py::object& ratio, const py::object& threshold,
                                               const py::object& fp16, const py::object& warmup) {
  auto options = c10::make_intrusive<Group::Options>(timeout);
  set(*options, "topk", "LIGHT_TOPK_ALLREDUCE", topk);
  set(*options, "topk_ratio", "LIGHT_TOPK_RATIO", ratio);
  set(*options, "topk_threshold", "LIGHT_TOPK_THRESHOLD", threshold);
  set(*options, "topk_fp16", "LIGHT_TOPK_FP16", fp16);
  set(*options, "topk_warmup_steps", "TACO_TOPK_WARMUP_STEPS", warmup);
  return options;
}

// The selection alone, as one buffer of a rank uses it.
class TopkSelector {
 public:
  at::Tensor select(const at::Tensor& gradient, const at::Tensor& residual, size_t k,
                    bool halfValues) {
    const char* operation = "TopkSelector.select";
    const Staged from(operation, "the gradient", gradient, Staged::Access::kRead);
    const Staged left(operation, "the residual", residual, Staged::Access::kReadWrite);
    if (!mayBeLossy(dtypeOf(gradient), ReduceOp::kSum)) {
      refuse(operation, str("the gradient is ", dtypeName(gradient),
                            "; it must be float32, float16 or bfloat16"));
    }
    if (residual.scalar_type() != at::kFloat || left.count() != from.count() ||
        !residual.is_contiguous()) {
      refuse(operation, str("the residual must be contiguous, torch.float32 and of ", from.count(),
                            " elements, as the gradient; it is ", dtypeName(residual), " and has ",
                            left.count()));
    }
    if (k < 1 || k > from.count()) {
      refuse(operation, str("k is ", k, "; it must be from 1 to the ", from.count(),
                            " elements of the gradient"));
    }
    from.load();
    const PayloadLayout layout{k, halfValues ? TopkValues::kFloat16 : TopkValues::kFloat32};
    const at::Tensor payload = at::empty({static_cast<int64_t>(layout.bytes())}, at::kByte);
    translated(operation, [&] {
      selector_.select(from.constBuffer(), residual.mutable_data_ptr<float>(), layout,
                       payload.mutable_data_ptr());
    });
    return payload;
  }

 private:
  Selector selector_;
};

}  // namespace

void bindTopk(py::module_& module, GroupClass& group, OptionsClass& options) {
  options
      .def(py::init(&makeOptions), py::arg("timeout") = kBackendDefaultTimeout, py::kw_only(),
           py::arg("topk") = py::none(), py::arg("topk_ratio") = py::none(),
           py::arg("topk_threshold") = py::none(), py::arg("topk_fp16") = py::none(),
           py::arg("topk_warmup_steps") = py::none(),
           "Options of a group (pg_options). timeout: of its operations. topk, topk_ratio, "
           "topk_threshold, topk_fp16, topk_warmup_steps: LIGHT_TOPK_ALLREDUCE, LIGHT_TOPK_RATIO, "
           "LIGHT_TOPK_THRESHOLD (bytes), LIGHT_TOPK_FP16 and TACO_TOPK_WARMUP_STEPS of this group, "
           "which win over the environment; equal on all ranks. ValueError for a bad value.")
      .def_readonly("settings", &Group::Options::settings);
  group
      .def("topk_all_reduce",
           [](Group& self, const at::Tensor& tensor, double ratio, bool halfValues, bool average,
              double momentum, std::optional<Millis> timeout) {
             return self.topkAllreduce(tensor, {ratio, halfValues, momentum}, average,
                                       timeout.value_or(c10d::kUnsetTimeout));
           },
           py::arg("tensor"), py::arg("ratio"), py::arg("half_values") = false,
           py::arg("average") = false, py::arg("momentum") = 0.0, py::arg("timeout") = py::none(),
           WithoutGil())
      .def("residual_stats",
           [](Group& self) {
             ResidualStats stats;
             {
               py::gil_scoped_release release;
               stats = self.residualStats();
             }
             py::dict result;
             result["count"] = stats.count;
             result["bytes"] = stats.bytes;
             result["norm"] = stats.norm;
             return result;
           })
      .def("residual_of",
           [](Group& self, const at::Tensor& tensor) -> py::object {
             std::optional<Group::ResidualCopy> copy;
             {
               py::gil_scoped_release release;
               copy = self.residualOf(tensor);
             }
             if (!copy) return py::none();
             const py::object momentum =
                 copy->momentum.defined() ? py::cast(copy->momentum) : py::none();
             return py::make_tuple(copy->domain, copy->residual, momentum);
           },
           py::arg("tensor"))
      .def("set_residual",
           [](Group& self, const at::Tensor& tensor, const std::string& kind,
              const at::Tensor& residual, const std::optional<at::Tensor>& momentum) {
             self.setResidual(tensor, {kind, residual, momentum.value_or(at::Tensor())});
           },
           py::arg("tensor"), py::arg("kind"), py::arg("residual"),
           py::arg("momentum") = py::none(), WithoutGil())
      .def("reset_residuals",
           [](Group& self, const std::optional<at::Tensor>& tensor) {
             self.scaleResiduals(0, tensor.value_or(at::Tensor()));
           },
           py::arg("tensor") = py::none(), WithoutGil())
      .def("scale_residuals",
           [](Group& self, double factor, const std::optional<at::Tensor>& tensor) {
             self.scaleResiduals(factor, tensor.value_or(at::Tensor()));
           },
           py::arg("factor"), py::arg("tensor") = py::none(), WithoutGil());
  py::class_<TopkSelector>(module, "TopkSelector", "The selection alone, for measuring.")
      .def(py::init())
      .def("select", &TopkSelector::select, py::arg("gradient"), py::arg("residual"), py::arg("k"),
           py::arg("half_values") = false, WithoutGil());
  module.def("topk_count",
             [](size_t count, double ratio) {
               return translated("topk_count", [&] { return topkCount(count, ratio); });
             },
             py::arg("count"), py::arg("ratio"));
  module.def("topk_warmup_ratio", &topkRatioAt, py::arg("step"), py::arg("warmup_steps"),
             py::arg("ratio"));
  module.def("set_exact", &setExact, py::arg("exact"));
}

}  // namespace taco
