// A model: its nodes and the graph that the planner sees, with the same indices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/box.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/pipeline/stage_cut.hpp"

namespace garonne::nn {

// How a parameter starts: normal with this deviation around zero, or constant where the deviation
// is 0.
struct Initialisation {
  double deviation = 0;
  double constant = 0;
  // The first so many elements of the stored whole have this times the deviation.
  std::int64_t head_elements = 0;
  double head_factor = 1;
};

struct Model {
  plan::ModelGraph graph;
  std::vector<std::shared_ptr<const Node>> nodes;  // by node index; null where a stage hands over
  std::vector<Initialisation> initialisations;     // by parameter index
  std::vector<Box> boxes;  // by parameter index: what it is of the stored whole
  std::int64_t batch = 0;  // samples of a micro-batch
  std::int64_t sequence = 0;
  FieldRows rows;  // of loaded fields, where this is a member's part
};

// The nodes and parameters of one stage of a pipeline (plan/pipeline/stage_cut.hpp).
Model cut_model(const Model& whole, const plan::StageCut& cut);

// What the kernels of the model's nodes read that the host makes, each once and by name. The model
// outlives them.
std::vector<ConstantTable> constant_tables(const Model& model, Precision precision);

// Row-major; empty of a scalar.
using TensorShape = std::vector<std::int64_t>;

// Puts a model together, filling in what a node's own declaration leaves open. The shapes of values
// are those of the tensors that nodes make and are given.
class ModelBuilder {
 public:
  explicit ModelBuilder(const Declaration& declaration) : declaration_(declaration) {}

  int add_input(const std::string& name, TensorShape shape);  // int64
  // Loaded too, but of the compute type; not differentiable.
  int add_field_input(const std::string& name, TensorShape shape);
  // `box` is in the shape that checkpoints have, where this rank does not hold all of it, or where
  // that shape is another (fused heads).
  int add_parameter(const std::string& name, TensorShape shape, Initialisation initialisation,
                    Box box = {});
  // Returns the value index of the output, which is of the compute type.
  int add_node(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
               std::vector<int> parameters, TensorShape shape);
  // The same for an output of float64 whatever the compute type.
  int add_double_node(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
                      TensorShape shape);
  // The same for an output of the type of gradients and optimizer states, float32 in bfloat16 runs.
  int add_state_node(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
                     std::vector<int> parameters, TensorShape shape);
  // Its last dimension is of real and imaginary parts.
  void set_complex(int parameter);
  // What the parameter is on the other tensor ranks.
  void set_replicated(int parameter, bool sums_over_tensor);
  // All tensor ranks have the same value and the same gradient of it.
  void set_value_replicated(int value);
  // All parameters that a rank has whole are on the other tensor ranks too, with parts of the
  // gradients.
  void set_uncut_replicated();
  // The scalar loss, of float64 whatever the compute type.
  int add_loss(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
               std::vector<int> parameters);
  void next_block() { ++block_; }
  // Of the nodes that follow. Without gradients they have no backward, and the values that they
  // make are constants to those who read them.
  void set_gradients(bool wanted) { gradients_ = wanted; }
  Model take() { return std::move(model_); }

 private:
  int add_loaded(plan::ValueSpec value);
  int append(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
             std::vector<int> parameters, NumberType type, TensorShape shape);
  // Its name, bytes, type and shape.
  plan::ValueSpec value_of(const std::string& name, NumberType type, TensorShape shape) const;

  Declaration declaration_;
  Model model_;
  int block_ = 0;
  bool gradients_ = true;
};

}  // namespace garonne::nn
