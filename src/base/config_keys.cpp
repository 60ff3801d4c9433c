// The table of keys. To add one: a member of RunConfig and a line here.
#include <iterator>
#include <limits>
#include <utility>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/key_kinds.hpp"
#include "base/key_limits.hpp"

namespace garonne {
namespace {

using Limits = std::numeric_limits<double>;

#define GARONNE_MEMBER(section, member) \
  [](RunConfig & config) -> auto& {     \
    return config.section.member;       \
  }

// Keys whose values rooms above register.
class RegisteredKeys {
 public:
  // null: any text.
  explicit RegisteredKeys(const Choices* choices) : choices_(choices) {}

  template <typename Access>
  KeySpec operator()(const char* name, Access access, const char* help) {
    return text_key(name, access, values_of(name), help);
  }
  template <typename Access>
  KeySpec names(const char* name, Access access, const char* help) {
    return names_key(name, access, values_of(name), help);
  }

  void expect_all_made() const {
    expect(choices_ == nullptr || choices_->size() == made_,
           "there are choices of a key whose values nobody registers");
  }

 private:
  std::vector<std::string> values_of(const char* name) {
    ++made_;
    if (choices_ == nullptr) return {};
    const auto found = choices_->find(name);
    expect(found != choices_->end() && !found->second.empty(),
           std::string("nobody registered a value of ") + name);
    return found->second;
  }

  const Choices* choices_;
  std::size_t made_ = 0;
};

std::vector<KeySpec> model_keys(RegisteredKeys& registered_key) {
  const double infinity = Limits::infinity();
  return {
      registered_key("model.kind", GARONNE_MEMBER(model, kind),
                     "family of the model: a language model (gpt, llama), or a neural operator of "
                     "fields (the others)"),
      integer_key("model.layers", GARONNE_MEMBER(model, layers), 1, most_layers,
                  "transformer or operator layers"),
      integer_key("model.hidden", GARONNE_MEMBER(model, hidden), 1, most_width,
                  "width of the residual stream; channels of an operator layer"),
      integer_key("model.heads", GARONNE_MEMBER(model, heads), 1, most_width,
                  "attention heads; divides hidden"),
      integer_key("model.sequence", GARONNE_MEMBER(model, sequence), 1, most_sequence,
                  "tokens of a sample"),
      integer_key("model.vocabulary", GARONNE_MEMBER(model, vocabulary), 0, most_vocabulary,
                  "rows of the token table; 0 = as in the data file"),
      real_key("model.dropout", GARONNE_MEMBER(model, dropout), 0, 1,
               "gpt: probability of embedding and residual dropout"),
      real_key("model.attention_dropout", GARONNE_MEMBER(model, attention_dropout), 0, 1,
               "gpt: probability of dropout of attention's weights, in training"),
      integer_key("model.kv_heads", GARONNE_MEMBER(model, kv_heads), 0, most_width,
                  "llama: heads of keys and values; divides heads; 0 = as many as heads"),
      integer_key("model.inner", GARONNE_MEMBER(model, inner), 0, most_width,
                  "llama: width of the gated unit; 0 = 8/3 of hidden, rounded up to a multiple of "
                  "64"),
      real_key("model.rope_theta", GARONNE_MEMBER(model, rope_theta), 1, infinity,
               "llama: base of the wavelengths of rotary positions"),
      real_key("model.norm_epsilon", GARONNE_MEMBER(model, norm_epsilon), 0, 1,
               "llama: what RMS norms add to the mean of squares"),
      switch_key("model.tied_embeddings", GARONNE_MEMBER(model, tied_embeddings),
                 "llama: the head's weights are the token table"),
  };
}

std::vector<KeySpec> operator_keys() {
  const double infinity = Limits::infinity();
  return {
      text_key(
          "model.block", GARONNE_MEMBER(model, block),
          {"auto", "neuralop", "li", "makani", "torch-harmonics"},
          "form of an operator's layers: fno, tfno: neuralop (channel MLP, gated skip; auto) or "
          "li (the paper of 2020); sfno: makani (auto) or torch-harmonics (its smaller "
          "example)"),
      list_key("model.modes", GARONNE_MEMBER(model, modes), 1, most_width, most_modes_axes,
               "fno, tfno, ufno: Fourier modes kept along each axis"),
      text_key("model.spectral_weights", GARONNE_MEMBER(model, spectral_weights),
               {"centred", "corners"},
               "fno, tfno, ufno: centred = n modes are the frequencies -n/2 to n/2-1, on the last "
               "axis 0 to n/2; corners = m modes are -m to m-1, on the last axis 0 to m-1"),
      integer_key(
          "model.padding", GARONNE_MEMBER(model, padding), 0, most_width,
          "fno, tfno, ufno: zeros appended to the far end of every axis, for fields that are "
          "not periodic"),
      integer_key("model.levels", GARONNE_MEMBER(model, levels), 1, most_levels,
                  "ufno: how often the points of every axis are halved on the way down and doubled "
                  "on the way up; points + padding are a multiple of 2^levels"),
      switch_key("model.coordinates", GARONNE_MEMBER(model, coordinates),
                 "fno, tfno, ufno: the coordinates of a point are input channels too"),
      text_key("model.factorization", GARONNE_MEMBER(model, factorization), {"tucker", "cp"},
               "tfno: form of the spectral weights"),
      real_key("model.rank", GARONNE_MEMBER(model, rank), 0, most_ratio,
               "tfno: numbers in the factors over numbers in the dense weights, about"),
      text_key(
          "model.implementation", GARONNE_MEMBER(model, implementation),
          {"factorized", "reconstructed"},
          "tfno: multiply by one factor after the other, or by the dense weights made of them"),
      real_key("model.mlp_ratio", GARONNE_MEMBER(model, mlp_ratio), 0, most_ratio,
               "operators: width of the layer's MLP over hidden; 0 = as usual: fno, tfno 0.5, afno "
               "4, sfno 2"),
      text_key("model.norm", GARONNE_MEMBER(model, norm), {"auto", "none", "instance", "layer"},
               "operators: normalisation; auto = as usual: fno, tfno none, afno layer, sfno "
               "instance"),
      integer_key("model.patch", GARONNE_MEMBER(model, patch), 1, most_width,
                  "afno: side of the square patches that become tokens"),
      integer_key("model.spectral_blocks", GARONNE_MEMBER(model, spectral_blocks), 1, most_width,
                  "afno: diagonal blocks of the spectral weights; divides hidden"),
      real_key("model.sparsity_threshold", GARONNE_MEMBER(model, sparsity_threshold), 0, infinity,
               "afno: soft shrinkage of the spectrum"),
      real_key("model.hard_thresholding", GARONNE_MEMBER(model, hard_thresholding), 0, most_ratio,
               "afno: share of the frequencies that are kept"),
      integer_key("model.scale_factor", GARONNE_MEMBER(model, scale_factor), 1, most_width,
                  "sfno: how much coarser the inner grid is"),
      text_key("model.spectral_operator", GARONNE_MEMBER(model, spectral_operator),
               {"dhconv", "diagonal"},
               "sfno: weights by degree only (rotation-equivariant), or by degree and order"),
      switch_key("model.big_skip", GARONNE_MEMBER(model, big_skip),
                 "sfno: a linear skip from the input to the decoder"),
  };
}

std::vector<KeySpec> data_keys() {
  return {
      text_key(
          "data.path", GARONNE_MEMBER(data, path), {},
          "text: tokens made by `garonne data text`, or by llm.c, nanoGPT (.bin) or Megatron "
          "(.idx), or several in proportions as 0.7*first.idx, 0.3*second.bin; fields: a file, "
          "a folder or a pattern with * of files that `garonne data inspect` understands"),
      text_key("data.period", GARONNE_MEMBER(data, period), {},
               "fields: dates that are trained on, as 1860/1999 or 2000-03-01/; none = all"),
      text_key("data.validation", GARONNE_MEMBER(data, validation), {},
               "files of the same kind that are not trained on, of tokens files that have "
               "validation tokens those; none = text: the validation tokens of data.path; fields: "
               "no validation, or data.path where there is a data.validation_period"),
      text_key("data.validation_period", GARONNE_MEMBER(data, validation_period), {},
               "fields: dates of the validation; none = all"),
      text_key("data.layout", GARONNE_MEMBER(data, layout), {},
               "fields: auto, or the layout's name (see `garonne data inspect --help`)"),
      text_key("data.inputs", GARONNE_MEMBER(data, inputs), {},
               "fields: input channels, comma-separated; none = all that change in time"),
      text_key("data.targets", GARONNE_MEMBER(data, targets), {},
               "fields: channels to predict, comma-separated; none = all that change in time"),
      integer_key("data.history", GARONNE_MEMBER(data, history), 0, most_history,
                  "fields: earlier frames that the input has besides the present one"),
      integer_key("data.lead", GARONNE_MEMBER(data, lead), 1, most_frames,
                  "fields: frames of the data from one step of the model to the next"),
      integer_key("data.stride", GARONNE_MEMBER(data, stride), 1, most_frames,
                  "fields: frames from one sample to the next"),
      text_key("data.missing", GARONNE_MEMBER(data, missing), {"refuse", "mask"},
               "fields: what to do about values that are not there: refuse the data, or mask them, "
               "which makes them the mean in inputs and leaves them out of the loss"),
      text_key("data.normalisation", GARONNE_MEMBER(data, normalisation),
               {"none", "channel", "pointwise"},
               "fields: subtract the mean and divide by the deviation of a channel, or of each of "
               "its points"),
      text_key("data.statistics", GARONNE_MEMBER(data, statistics), {},
               "fields: means and deviations, made by `garonne data statistics`; none = those "
               "beside the data"),
  };
}

std::vector<KeySpec> grid_and_memory_keys(RegisteredKeys& registered_key) {
  return {
      integer_key("grid.data", GARONNE_MEMBER(grid, data), 1, most_ranks,
                  "ranks that share a global batch"),
      integer_key("grid.pipeline", GARONNE_MEMBER(grid, pipeline), 1, most_ranks,
                  "pipeline stages: each holds a run of the model's blocks"),
      integer_key("grid.tensor", GARONNE_MEMBER(grid, tensor), 1, most_ranks,
                  "ranks that share a layer: model.heads, or the rows of fields"),
      switch_key("grid.sequence_parallel", GARONNE_MEMBER(grid, sequence_parallel),
                 "tensor ranks also share the rows of norms, dropout and residuals"),
      registered_key(
          "grid.schedule", GARONNE_MEMBER(grid, schedule),
          "order of forwards and backwards in a pipeline (see `garonne simulate`); varuna "
          "is refused: what is run again is up to memory.plan; of two passes that a "
          "schedule lets overlap, as dualpipev does, one computes while the other communicates "
          "over its tensor ranks; they run one after the other without tensor ranks, with "
          "grid.zero = 3 "
          "on several data ranks, and where the budget has no room for both"),
      text_key(
          "grid.schedule_file", GARONNE_MEMBER(grid, schedule_file), {},
          "of schedule file: a garonne.pipeline-schedule, as `garonne simulate --save` writes"),
      integer_key("grid.chunks", GARONNE_MEMBER(grid, chunks), 0, most_ranks,
                  "parts of the model on each pipeline stage; 0 = what the schedule takes"),
      integer_key("grid.group_size", GARONNE_MEMBER(grid, group_size), 0, most_ranks,
                  "of interleaved: micro-batches that pass a part in a row; 0 = grid.pipeline"),
      registered_key("grid.transport", GARONNE_MEMBER(grid, transport),
                     "what carries gradients; auto = mpi on CPUs and where ranks "
                     "share a GPU, else nccl"),
      bytes_key("grid.bucket", GARONNE_MEMBER(grid, bucket), false,
                "gradients are reduced over the data axis in buckets of about this size"),
      integer_key("grid.zero", GARONNE_MEMBER(grid, zero), 0, 3,
                  "what data ranks hold in shards: 1 optimizer states and masters, 2 gradients "
                  "too, 3 parameters too; 0 = nothing"),
      text_key("grid.tensor_wire", GARONNE_MEMBER(grid, tensor_wire), {"compute", "float32"},
               "with bfloat16: in what sums over tensor ranks travel: train.precision, or float32, "
               "which is twice the bytes; they are added in float32 and rounded once"),
      text_key("grid.gradient_wire", GARONNE_MEMBER(grid, gradient_wire), {"float32", "compute"},
               "with bfloat16: in what sums of gradients over data ranks travel: float32, or "
               "train.precision; they are added in float32"),
      text_key(
          "grid.messages", GARONNE_MEMBER(grid, messages), {"auto", "whole", "scattered"},
          "what all tensor ranks have goes to the next stage whole from each, or scattered: a "
          "part from each, gathered there; auto = scattered where stages are on different nodes "
          "and tensor groups on one; the bits are the same"),
      bytes_key(
          "memory.budget", GARONNE_MEMBER(memory, budget), true,
          "hard limit for each rank; auto = the least of what is free on the node, its control "
          "group, Slurm's limits and ulimit, shared by its ranks"),
      registered_key("memory.plan", GARONNE_MEMBER(memory, plan),
                     "auto = the fastest that fits; or one policy or solver"),
      bytes_key("memory.host_budget", GARONNE_MEMBER(memory, host_budget), true,
                "hard limit for each rank on memory of the host beside that of a device, for what "
                "the device does not use for a while; auto = half of what is free, shared by the "
                "ranks of the node; 0 = none"),
      text_key("memory.disk", GARONNE_MEMBER(memory, disk), {},
               "folder on a disk of the node, for what a rank does not use for a while: a file "
               "without a name, past the page cache; none = all stays in memory"),
      bytes_key("memory.disk_budget", GARONNE_MEMBER(memory, disk_budget), true,
                "hard limit for each rank on memory.disk; auto = what is free there, shared by the "
                "ranks of the node"),
      text_key("memory.host_updates", GARONNE_MEMBER(memory, host_updates), {"auto", "within-step"},
               "updates on the host end within their step, or, with auto, go on beside the next "
               "one's passes where that is faster; the bits are the same"),
      registered_key.names("memory.allow", GARONNE_MEMBER(memory, allow),
                           "ways to need less memory; auto = all that give the bits of a run "
                           "without them and have the tier that they need"),
  };
}

std::vector<KeySpec> train_keys(RegisteredKeys& registered_key) {
  const double infinity = Limits::infinity();
  return {
      integer_key("train.steps", GARONNE_MEMBER(train, steps), 1, most_steps,
                  "optimizer steps of the whole run"),
      integer_key("train.stop_after", GARONNE_MEMBER(train, stop_after), 0, most_steps,
                  "save and stop with exit code 75 after so many steps of this invocation; 0 = no"),
      integer_key("train.global_batch", GARONNE_MEMBER(train, global_batch), 1, most_samples,
                  "samples a step, over the whole grid"),
      integer_key("train.micro_batch", GARONNE_MEMBER(train, micro_batch), 1, most_samples,
                  "samples that go through the model at once on a rank"),
      text_key("train.precision", GARONNE_MEMBER(train, precision),
               {"float32", "float64", "bfloat16"},
               "compute type; with bfloat16 masters, gradients and moments stay float32"),
      text_key(
          "train.products", GARONNE_MEMBER(train, products), {"ieee", "tf32"},
          "on GPUs, of float32: what products of matrices multiply is rounded as IEEE numbers, "
          "or to TF32, which is faster and has 10 bits of the fraction; sums stay float32"),
      registered_key("train.loss", GARONNE_MEMBER(train, loss),
                     "auto = cross-entropy of a language model, relative-l2 of an operator"),
      integer_key("train.rollout", GARONNE_MEMBER(train, rollout), 1, most_rollout,
                  "operators: times that the network is applied to its own prediction in a step; "
                  "the loss is the mean over them"),
      integer_key("train.push_forward", GARONNE_MEMBER(train, push_forward), 0, most_rollout,
                  "operators: times that the network is applied to its own prediction before the "
                  "steps of the rollout, without gradients and without a loss"),
      real_key("train.noise", GARONNE_MEMBER(train, noise), 0, infinity,
               "operators: deviation of Gaussian noise on the inputs that are loaded, as they are "
               "normalised"),
      integer_key("train.members", GARONNE_MEMBER(train, members), 1, most_members,
                  "operators: forecasts of each sample, from inputs with noise of their own "
                  "(train.noise), which train.loss = crps compares as an ensemble"),
      switch_key("train.decode", GARONNE_MEMBER(train, decode),
                 "fields: the loss is of fields in their own units, not of normalised ones"),
      integer_key("train.seed", GARONNE_MEMBER(train, seed), 0, any_integer,
                  "of initialisation, dropout and the order of samples"),
  };
}

// In float32 its root is a number to divide by.
constexpr double least_square_epsilon = 1e-37;

std::vector<KeySpec> optimizer_keys(RegisteredKeys& registered_key) {
  const double infinity = Limits::infinity();
  return {
      registered_key("optimizer.name", GARONNE_MEMBER(optimizer, name), "optimizer"),
      text_key("optimizer.decay", GARONNE_MEMBER(optimizer, decay), {"decoupled", "l2"},
               "where weight decay acts: on the parameter itself, or as l2 in the gradient, which "
               "makes adamw Adam"),
      text_key(
          "optimizer.complex", GARONNE_MEMBER(optimizer, complex), {"independent", "joint"},
          "second moment of complex weights: independent = of each real number, as in PyTorch; "
          "joint = of the magnitude of the complex number, as in neuraloperator"),
      registered_key(
          "optimizer.schedule", GARONNE_MEMBER(optimizer, schedule),
          "of the learning rate after the warm-up: down to the minimum along a cosine or "
          "a line, constant, or warmup-stable-decay: constant, then a line at the end"),
      real_key("optimizer.learning_rate", GARONNE_MEMBER(optimizer, learning_rate), 0, infinity,
               "at the end of the warm-up"),
      real_key("optimizer.minimum_learning_rate", GARONNE_MEMBER(optimizer, minimum_learning_rate),
               0, infinity, "at the end; not of a constant schedule"),
      integer_key("optimizer.warmup_steps", GARONNE_MEMBER(optimizer, warmup_steps), 0, most_steps,
                  "steps of linear warm-up"),
      integer_key("optimizer.decay_steps", GARONNE_MEMBER(optimizer, decay_steps), 0, most_steps,
                  "last steps, in which warmup-stable-decay goes down; 0 = a tenth of those after "
                  "the warm-up"),
      real_key("optimizer.beta1", GARONNE_MEMBER(optimizer, beta1), 0, 1,
               "decay of the first moment; the momentum of sgd and lars; adafactor has none"),
      real_key("optimizer.beta2", GARONNE_MEMBER(optimizer, beta2), 0, 1,
               "decay of the second moment; of lion: of its moment between steps"),
      real_key("optimizer.epsilon", GARONNE_MEMBER(optimizer, epsilon), 0, infinity,
               "added to the root of the second moment; of lars: to the norm of the gradient"),
      real_key("optimizer.weight_decay", GARONNE_MEMBER(optimizer, weight_decay), 0, infinity,
               "of matrices, embeddings and spectral weights; 0 for the rest"),
      text_key("optimizer.no_decay", GARONNE_MEMBER(optimizer, no_decay), {},
               "parts of names of parameters, comma-separated, that take no weight decay either, "
               "as embedding; `garonne plan --json` has the names"),
      text_key("optimizer.weight_decays", GARONNE_MEMBER(optimizer, weight_decays), {},
               "weight decays of some parameters' own, comma-separated: a part of their names, =, "
               "the number, as embedding=0.01; of several parts that fit the first counts, and "
               "optimizer.no_decay before all"),
      integer_key("optimizer.base_batch", GARONNE_MEMBER(optimizer, base_batch), 0, most_samples,
                  "train.global_batch that the learning rates are for: another one scales them; "
                  "0 = they are for any"),
      text_key("optimizer.batch_scaling", GARONNE_MEMBER(optimizer, batch_scaling),
               {"linear", "root"},
               "how rates grow with train.global_batch over optimizer.base_batch: linear = by as "
               "much, as is usual for sgd and lars; root = by its root, for adamw and lamb"),
      real_key("optimizer.trust_coefficient", GARONNE_MEMBER(optimizer, trust_coefficient), 0,
               infinity,
               "of lars: norm of a step over that of its matrix, at a learning rate of 1"),
      real_key("optimizer.trust_limit", GARONNE_MEMBER(optimizer, trust_limit), 0, infinity,
               "of lars and lamb: the most that the learning rate of a matrix is multiplied with; "
               "0 = no limit"),
      real_key(
          "optimizer.beta2_power", GARONNE_MEMBER(optimizer, beta2_power), 0, infinity,
          "of adafactor: in step t its moments keep 1 - 1 / t to this power of what they were"),
      real_key("optimizer.square_epsilon", GARONNE_MEMBER(optimizer, square_epsilon),
               least_square_epsilon, infinity, "of adafactor: added to the squares of gradients"),
      real_key("optimizer.update_limit", GARONNE_MEMBER(optimizer, update_limit), 0, infinity,
               "of adafactor: largest root mean square of the update of a parameter, before it is "
               "multiplied with the learning rate; 0 = no limit"),
      real_key("optimizer.smallest_scale", GARONNE_MEMBER(optimizer, smallest_scale), 0, infinity,
               "of adafactor: learning rates are shares of a parameter's root mean square, which "
               "counts as at least this; 0 = they are as they are given"),
      real_key("optimizer.clip_norm", GARONNE_MEMBER(optimizer, clip_norm), 0, infinity,
               "largest global gradient norm; 0 = no clipping"),
  };
}

std::vector<KeySpec> evaluation_and_checkpoint_keys() {
  return {
      integer_key("evaluation.every", GARONNE_MEMBER(evaluation, every), 0, most_steps,
                  "steps between validations; 0 = only at the end"),
      integer_key("evaluation.batches", GARONNE_MEMBER(evaluation, batches), 0, most_samples,
                  "micro-batches of a validation, over the whole grid; 0 = no validation"),
      integer_key("checkpoint.every", GARONNE_MEMBER(checkpoint, every), 0, most_steps,
                  "steps between checkpoints; 0 = only at the end"),
      integer_key("checkpoint.keep", GARONNE_MEMBER(checkpoint, keep), 1, most_steps,
                  "newest checkpoints to keep"),
      integer_key("checkpoint.keep_minutes", GARONNE_MEMBER(checkpoint, keep_minutes), 0,
                  most_minutes,
                  "beside the newest, one checkpoint of every so many minutes stays for good; 0 = "
                  "none"),
      text_key("checkpoint.saving", GARONNE_MEMBER(checkpoint, saving),
               {"auto", "asynchronous", "synchronous"},
               "asynchronous: the state is copied and written while training goes on, and the plan "
               "leaves room for the copy; auto: that, where the copy fits beside the fastest plan"),
  };
}

std::vector<KeySpec> log_and_run_keys() {
  return {
      integer_key("log.every", GARONNE_MEMBER(log, every), 1, most_steps,
                  "print every so many steps, besides the first few and the last; metrics.jsonl "
                  "has each of them"),
      text_key("run.directory", GARONNE_MEMBER(run, directory), {}, "where the run writes"),
      text_key("run.resume", GARONNE_MEMBER(run, resume), {"auto", "never"},
               "auto = from the newest checkpoint that verifies; never = wants an empty directory"),
      text_key("run.device", GARONNE_MEMBER(run, device), {"cpu", "cuda", "auto", "emulated"},
               "where the model runs: on the processor, on a GPU, or on a GPU where one is there "
               "(auto); emulated: a processor whose lanes are late, for tests"),
      text_key("run.graphs", GARONNE_MEMBER(run, graphs), {"auto", "always", "never"},
               "whether a step on a GPU is recorded once and then carried out as one CUDA graph: "
               "where that saves time (auto), else an error (always), or never"),
      integer_key("run.threads", GARONNE_MEMBER(run, threads), 0, most_threads,
                  "threads a rank; 0 = cores of the node over the ranks on it, the least of all "
                  "nodes"),
      integer_key("run.timeout", GARONNE_MEMBER(run, timeout), 0, most_wait_seconds,
                  "seconds that ranks wait in training for each other, or for one that does not "
                  "answer, before the run is ended (exit code 4); 0 = for ever"),
  };
}

std::vector<KeySpec> make_keys(const Choices* choices) {
  RegisteredKeys registered(choices);
  std::vector<KeySpec> keys;
  const auto add = [&](std::vector<KeySpec> section) {
    std::move(section.begin(), section.end(), std::back_inserter(keys));
  };
  add(model_keys(registered));
  add(operator_keys());
  add(data_keys());
  add(grid_and_memory_keys(registered));
  add(train_keys(registered));
  add(optimizer_keys(registered));
  add(evaluation_and_checkpoint_keys());
  add(log_and_run_keys());
  registered.expect_all_made();
  return keys;
}

#undef GARONNE_MEMBER

}  // namespace

const std::vector<KeySpec>& config_keys() {
  static const std::vector<KeySpec> keys = make_keys(nullptr);
  return keys;
}

std::vector<KeySpec> config_keys(const Choices& choices) {
  return make_keys(&choices);
}

}  // namespace garonne
