// A run's configuration: one struct, and one table that declares every key once. From the table
// come the reading of files, the command line, --help, the reference page and the check for unknown
// keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace garonne {

struct RunConfig {
  struct Model {
    std::string kind = "gpt";
    std::int64_t layers = 4;
    std::int64_t hidden = 128;
    std::int64_t heads = 4;
    std::int64_t sequence = 128;
    std::int64_t vocabulary = 0;
    double dropout = 0.0;
    double attention_dropout = 0.0;
    // Llama.
    std::int64_t kv_heads = 0;
    std::int64_t inner = 0;
    double rope_theta = 10000.0;
    double norm_epsilon = 1e-5;
    bool tied_embeddings = false;
    // Neural operators.
    std::string block = "auto";
    std::vector<std::int64_t> modes;
    std::string spectral_weights = "centred";
    std::int64_t padding = 0;
    std::int64_t levels = 2;
    bool coordinates = true;
    std::string factorization = "tucker";
    double rank = 0.1;
    std::string implementation = "factorized";
    double mlp_ratio = 0.0;
    std::string norm = "auto";
    std::int64_t patch = 8;
    std::int64_t spectral_blocks = 8;
    double sparsity_threshold = 0.01;
    double hard_thresholding = 1.0;
    std::int64_t scale_factor = 1;
    std::string spectral_operator = "dhconv";
    bool big_skip = true;
  } model;
  struct Data {
    std::string path;
    // Fields.
    std::string period;
    std::string validation;
    std::string validation_period;
    std::string layout = "auto";
    std::string inputs;
    std::string targets;
    std::int64_t history = 0;
    std::int64_t lead = 1;
    std::int64_t stride = 1;
    std::string missing = "refuse";
    std::string normalisation = "channel";
    std::string statistics;
  } data;
  struct GridKeys {
    std::int64_t data = 1;
    std::int64_t pipeline = 1;
    std::int64_t tensor = 1;
    bool sequence_parallel = false;
    std::string schedule = "1f1b";
    std::string schedule_file;
    std::int64_t chunks = 0;
    std::int64_t group_size = 0;
    std::string transport = "auto";
    std::int64_t bucket = 4 << 20;
    std::int64_t zero = 0;
    std::string tensor_wire = "compute";
    std::string gradient_wire = "float32";
    std::string messages = "auto";
  } grid;
  struct Memory {
    std::int64_t budget = automatic_budget;
    std::string plan = "auto";
    std::int64_t host_budget = 0;
    std::string disk;
    std::int64_t disk_budget = automatic_budget;
    std::string host_updates = "auto";
    std::vector<std::string> allow;  // empty: auto
  } memory;
  struct Train {
    std::int64_t steps = 400;
    std::int64_t stop_after = 0;
    std::int64_t global_batch = 16;
    std::int64_t micro_batch = 4;
    std::string precision = "float32";
    std::string products = "ieee";
    std::string loss = "auto";
    std::int64_t rollout = 1;
    std::int64_t push_forward = 0;
    double noise = 0.0;
    std::int64_t members = 1;
    bool decode = false;
    std::int64_t seed = 1;
  } train;
  struct Optimizer {
    std::string name = "adamw";
    std::string decay = "decoupled";
    std::string complex = "independent";
    std::string schedule = "cosine";
    double learning_rate = 3e-4;
    double minimum_learning_rate = 3e-5;
    std::int64_t warmup_steps = 100;
    std::int64_t decay_steps = 0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    std::string no_decay;
    std::string weight_decays;
    double clip_norm = 1.0;
    std::int64_t base_batch = 0;
    std::string batch_scaling = "linear";
    double trust_coefficient = 1e-3;
    double trust_limit = 10.0;
    double beta2_power = 0.8;
    double square_epsilon = 1e-30;
    double update_limit = 1.0;
    double smallest_scale = 1e-3;
  } optimizer;
  struct Evaluation {
    std::int64_t every = 100;
    std::int64_t batches = 20;
  } evaluation;
  struct Checkpoint {
    std::int64_t every = 100;
    std::int64_t keep = 2;
    std::int64_t keep_minutes = 0;
    std::string saving = "auto";
  } checkpoint;
  struct Log {
    std::int64_t every = 1;
  } log;
  struct Run {
    std::string directory = "runs/default";
    std::string resume = "auto";
    std::string device = "cpu";
    std::string graphs = "auto";
    std::int64_t threads = 0;
    std::int64_t timeout = 600;
  } run;

  // "auto" of memory.budget, memory.host_budget and memory.disk_budget.
  static constexpr std::int64_t automatic_budget = -1;
};

enum class KeyType { Text, Integer, Real, Bytes, Switch, List, Names };

struct KeySpec {
  std::string name;  // dotted
  KeyType type = KeyType::Text;
  std::string range;  // for people, as ">= 1" or "float32, float64, bfloat16"
  std::string help;
  // As on the command line: without quotes, the integers or names of a list between commas.
  std::function<std::string(const RunConfig&)> get;
  // Throws ConfigError when the text is no such value or out of range.
  std::function<void(RunConfig&, const std::string&)> set;
};

// Values of the text keys whose values rooms above register, by key, as they are shown.
using Choices = std::map<std::string, std::vector<std::string>>;

// Every key, in the order of the sections. Registered values are any text here.
const std::vector<KeySpec>& config_keys();
// The same; keys with registered values take one of `choices`, which has just these keys
// (InternalError).
std::vector<KeySpec> config_keys(const Choices& choices);

// (dotted key, value) as given on the command line; lists comma-separated.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// Reads a TOML file, then the overrides. Throws ConfigError: unknown key with a suggestion, wrong
// type, out of range, none of the choices, duplicate, malformed file with its line.
RunConfig load_config(const std::string& path, const Overrides& overrides, const Choices& choices);
RunConfig parse_config(const std::string& toml_text, const std::string& name,
                       const Overrides& overrides, const Choices& choices);

// The effective configuration as a TOML file with every key.
std::string config_to_toml(const RunConfig& config);

// Dotted keys whose values differ.
std::vector<std::string> changed_keys(const RunConfig& a, const RunConfig& b);

// The nearest of `known` to `word`, or empty when none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

// micro-batches a step on each data rank; throws ConfigError when the global batch does not divide.
std::int64_t micro_batches_per_rank(const RunConfig& config);

}  // namespace garonne
