// A model: its nodes and the graph that the planner sees, with the same indices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/node.hpp"
#include "plan/model_graph.hpp"
#include "plan/stage_cut.hpp"

namespace garonne::nn {

// How a parameter starts: normal with this deviation around zero, or constant where the deviation
// is 0.
struct Initialisation {
  double deviation = 0;
  double constant = 0;
};

struct Model {
  plan::ModelGraph graph;
  std::vector<std::shared_ptr<const Node>> nodes;  // by node index; null where a stage hands over
  std::vector<Initialisation> initialisations;   // by parameter index
  std::vector<std::vector<std::int64_t>> boxes;  // by parameter index: the shape it is stored with
  std::int64_t batch = 0;                        // samples of a micro-batch
  std::int64_t sequence = 0;
};

// The nodes and parameters of one stage of a pipeline (plan/stage_cut.hpp).
Model cut_model(const Model& whole, const plan::StageCut& cut);

// Puts a model together, filling in what a node's own declaration leaves open.
class ModelBuilder {
 public:
  explicit ModelBuilder(const Declaration& declaration) : declaration_(declaration) {}

  int add_input(const std::string& name, std::int64_t elements);  // int64
  // `stored` is the shape in checkpoints where it differs (fused heads).
  int add_parameter(const std::string& name, std::vector<std::int64_t> shape,
                    Initialisation initialisation, std::vector<std::int64_t> stored = {});
  // Returns the value index of the output, `elements` of the compute type.
  int add_node(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
               std::vector<int> parameters, std::int64_t elements);
  // The scalar loss, of 8 bytes whatever the precision.
  int add_loss(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
               std::vector<int> parameters);
  void next_block() { ++block_; }
  Model take() { return std::move(model_); }

 private:
  int append(const std::string& name, std::unique_ptr<Node> node, std::vector<int> inputs,
             std::vector<int> parameters, std::int64_t output_bytes, std::int64_t output_elements);

  Declaration declaration_;
  Model model_;
  int block_ = 0;
};

}  // namespace garonne::nn
