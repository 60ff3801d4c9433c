#include "train/run/gradient_capture.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "exec/buffer_store.hpp"
#include "nn/element_type.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/tensor_names.hpp"

namespace garonne::train {

GradientCapture::GradientCapture(const nn::Model& model, const exec::ModelState& state) {
  gradients_.precision = state.precision;
  gradients_.in_shards = state.in_shards;
  const auto type = nn::state_scalar_type(state.precision);
  gradients_.buffers =
      exec::BufferStore({{Tier::Device, [](at::IntArrayRef shape, at::ScalarType of) {
                            return at::zeros(shape, of);
                          }}});
  place_of_.assign(model.graph.parameters.size(), -1);
  for (const exec::TrainedPiece& piece : state.pieces) {
    const auto p = static_cast<std::size_t>(piece.index);
    place_of_.at(p) = static_cast<int>(gradients_.pieces.size());
    exec::TrainedPiece& gradient = gradients_.pieces.emplace_back();
    gradient.index = piece.index;
    gradient.first = piece.first;
    gradient.parameter = {model.graph.parameters[p].name, 0, piece.trained().shape};
    gradients_.buffers.make(gradient.parameter.buffer, Tier::Device, gradient.parameter.shape,
                            type);
  }
}

void GradientCapture::take(int parameter, const at::Tensor& gradient) {
  if (finished_) return;
  const int place = place_of_.at(static_cast<std::size_t>(parameter));
  expect(place >= 0, "a gradient of which nothing is here");
  const at::Tensor kept = gradients_.parameter(static_cast<std::size_t>(place)).parameter;
  expect(kept.numel() == gradient.numel(), "a gradient of another size than its parameter");
  kept.view({-1}).copy_(gradient);
}

void expect_gradients_folder(const std::string& folder, const std::string& run_directory) {
  namespace fs = std::filesystem;
  if (folder.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("--gradients", folder,
                      why + "; give a folder of its own, which is made where it is missing");
  };
  std::error_code error;
  if (fs::weakly_canonical(folder, error) == fs::weakly_canonical(run_directory, error))
    refuse("is the directory of this run, which would go on from gradients");
  if (!fs::exists(folder, error) && fs::is_symlink(folder, error))
    refuse("is a link that leads nowhere yet");
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) refuse("is a file");
  for (const char* name : {"config.toml", "lock", "checkpoints.json"}) {
    if (fs::exists(fs::path(folder) / name, error))
      refuse(fmt::format("is a run directory: it has {}", name));
  }
  for (const std::int64_t step : list_checkpoints(folder)) {
    const std::string path = checkpoint_path(folder, step);
    bool of_gradients = false;
    try {
      const Manifest manifest = read_manifest(path);
      of_gradients = parameter_names(manifest).size() == manifest.tensors.size();
    } catch (const IoError&) {  // damaged: whose it is nobody knows
    }
    if (!of_gradients) refuse(fmt::format("has a checkpoint of a run: {}", path));
  }
}

}  // namespace garonne::train
