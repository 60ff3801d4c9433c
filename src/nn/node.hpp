// A node: a differentiable unit with a forward and a backward, and what it tells the planner about
// itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "base/precision.hpp"
#include "base/product_rounding.hpp"
#include "kernels/element_type.hpp"
#include "plan/model/device_facts.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::nn {

class Products;

// What the planner counts allocations with.
struct Declaration {
  Precision precision = Precision::Float32;
  ProductRounding products = ProductRounding::Ieee;       // of float32 matrices
  std::int64_t granularity = cpu_allocation_granularity;  // of the device's memory
  int threads = 1;                // some transients of the tensor library grow with it
  plan::DeviceFacts device = {};  // whose kernels take the transients

  std::int64_t element_bytes() const { return compute_bytes(precision); }
  // Bytes of an allocation of so many elements of the compute type.
  std::int64_t tensor(std::int64_t elements) const;
  std::int64_t allocation(std::int64_t bytes) const;
};

// Numbers that kernels of a node read and that the host makes once: the matrix of a transform, say.
// What has a memory of its own has a copy for as long as a run's state; elsewhere kernels read the
// host's.
struct ConstantTable {
  std::string name;  // two with one name are equal
  std::int64_t bytes = 0;
  std::function<const void*()> on_host;  // made when it is first asked for; the node outlives it
};
// By name, as bytes.
using DeviceTables = std::map<std::string, at::Tensor>;

// What a node is told about the step it runs in.
struct Context {
  Queue queue;  // that nodes put their kernels into
  Precision precision = Precision::Float32;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  bool training = true;                   // dropout acts
  const std::int64_t* samples = nullptr;  // [batch], global sample indices
  std::int64_t batch = 0;
  const Products* products = nullptr;
  // Of the tensor group: which member this rank is, and how many there are.
  int tensor_member = 0;
  int tensor_members = 1;
  const DeviceTables* tables = nullptr;  // null where kernels read those of the host
  // Where not null, kernels read the step there: they are carried out in other steps, too.
  const std::uint64_t* step_place = nullptr;

  // The copy of a constant table, or undefined where kernels read the host's. Throws InternalError
  // where there is none of that name and size.
  at::Tensor table(const std::string& name, std::int64_t bytes) const;
  kernels::ElementType element_type() const;
};

// What one instance keeps from forward to backward: the private slots. Pinned values and parameters
// are not in it, they are handed in again.
struct Record {
  int option = 0;  // which of the node's ways to be kept is asked for: plan::NodeSpec::keep_option
  std::vector<at::Tensor> slots;
};

struct ParameterGradient {
  at::Tensor target;  // flat range of a bucket, in the gradient type
  bool accumulate = false;
};

// Values and their gradients come in the types and shapes that the model declares for the values.
struct BackwardArguments {
  std::vector<at::Tensor> inputs;      // undefined where the node does not pin them
  at::Tensor output;                   // undefined where not pinned
  at::Tensor output_gradient;          // undefined for the loss, whose gradient is `loss_scale`
  std::vector<at::Tensor> parameters;  // undefined in the weight part of a split backward
  std::vector<ParameterGradient> parameter_gradients;
  bool weights = true;             // false in the input part of a split backward
  std::vector<bool> wanted;        // one an input
  std::vector<at::Tensor> add_to;  // one an input: add into this storage in place, or undefined
  std::vector<bool> overwrite;     // one an input: its gradient goes over the output's
  Record* record = nullptr;
  double loss_scale = 1;
};

enum class Direction { Forward, Backward };

// What a pass that is divided is given, and its result.
struct DividedPass {
  Direction direction = Direction::Forward;
  at::Tensor given;  // the input, or the gradient of the output; only before the collective
  // The result goes over this: before the collective where that works on it, else after; undefined
  // = into a storage of its own.
  at::Tensor over;
};

class Node {
 public:
  virtual ~Node() = default;

  // Kind, cost key, bytes and operations; the model fills in names, indices and block.
  virtual plan::NodeSpec declare(const Declaration& declaration) const = 0;

  // What its kernels read beside inputs and parameters.
  virtual std::vector<ConstantTable> tables(Precision precision) const;

  // Makes the output, in a storage of its own and as the model declares the value. With a record,
  // fills it with what the backward needs.
  virtual at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& parameters, Record* record) const = 0;

  // Gradients of the wanted inputs (undefined elsewhere), of the inputs' types and, in any shape of
  // as many elements, contiguous; writes or adds the parameters' into their
  // targets.
  virtual std::vector<at::Tensor> backward(const Context& context,
                                           BackwardArguments& arguments) const = 0;

  // A pass for which the node declares a collective is divided there, and these take the place of
  // forward() or backward(). begin() makes the range that the ranks exchange, contiguous and of the
  // type that it is summed in; finish() makes the result of it, which is the same storage where the
  // node declares none for the range. Others throw InternalError.
  virtual at::Tensor begin(const Context& context, const DividedPass& pass) const;
  virtual at::Tensor finish(const Context& context, const DividedPass& pass,
                            const at::Tensor& exchanged) const;
};

}  // namespace garonne::nn
