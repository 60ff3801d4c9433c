// How another framework does what Garonne does otherwise, as far as step times depend on it. A
// cluster file says it where plans are held against step times of such a framework; what is planned
// is Garonne's either way, bytes included.
#pragma once

#include <string>
#include <vector>

namespace garonne::plan {

struct ModelGraph;
struct NodeSpec;

// How the gradients of a weight over the micro-batches of a step come together.
enum class GradientSums {
  Fused,    // the product that makes one adds it
  Compute,  // a kernel by itself adds what was made, to a sum of the compute type
  Float32,  // the same, to a sum of float32
};

struct Software {
  std::string name = {};  // for people
  // Attention computes all scores, those of later positions too, and writes them to memory between
  // its operations. Its backward computes none again.
  bool stores_scores = false;
  // The loss is a kernel for each operation, on logits that become float32 first.
  bool unfused_loss = false;
  // So are norms, on values that become float32 first.
  bool unfused_norms = false;
  // Stages have blocks by their seconds; else equally many, the last what is left, where the
  // embedding and the head are two of them if `counts_ends`.
  bool balances_stages = true;
  bool counts_ends = false;
  GradientSums gradient_sums = GradientSums::Fused;
  // That the host takes to issue the forward of a block, and a quarter of it for its backward; the
  // host takes nothing else then, but for collectives. 0: all by kernels.
  double block_issue_seconds = 0;
  // The same for a collective of two tensor ranks, and once more for each time that they are twice
  // as many, since they wait for the slowest of their hosts.
  double collective_issue_seconds = 0;
  // The host issues nothing before a message between stages has come, or gone, and its device
  // computes nothing meanwhile; nor does it load a micro-batch before the device is through with
  // the one before. Else it is ahead of the device.
  bool host_waits = false;
  // Nor before the operation has ended that it issued last.
  bool waits_for_operations = false;
  // What is on its way while the device computes; else that stands still until it has ended.
  bool overlaps_reductions = true;   // sums of gradients over ranks, but tensor ranks
  bool overlaps_collectives = true;  // over tensor ranks: sums of gradients that have parts there
  bool overlaps_copies = true;       // between tiers of memory

  bool operator==(const Software&) const = default;
};

// Bytes that a pass of the node moves beside its inputs and its output, and how many times the
// operations that are declared it carries out, where the software is such.
struct SoftwarePass {
  double bytes = 0;
  double operations = 1;
};
// Seconds by which balanced_blocks deals out equally many of `blocks` to so many parts, the first
// and the last of the model beside them, or `counting_ends` among them. Where they do not divide,
// the last part has what the others leave.
std::vector<double> equal_block_seconds(int blocks, bool counting_ends, int parts);
// The graph with these, for balanced_parts.
ModelGraph with_equal_blocks(const ModelGraph& graph, bool counting_ends, int parts);

// Bytes that the sums of gradients of weights move for each element, beside the products.
double gradient_sum_bytes(const Software& software, double number_bytes);

// Where the host waits for operations: all that it takes to issue them, the device computes
// nothing, so that it is part of their seconds. Once the nodes have all of both.
void wait_for_operations(ModelGraph& graph);

// `elements`: numbers of its output, of `number_bytes` each.
SoftwarePass software_forward(const Software& software, const NodeSpec& node, double elements,
                              double number_bytes);
SoftwarePass software_backward(const Software& software, const NodeSpec& node, double elements,
                               double number_bytes);

}  // namespace garonne::plan
