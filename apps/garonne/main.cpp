// The executable: reads the command line, runs one command, and turns every failure into one
// message and a documented exit code. This is the only place that catches.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "base/printable.hpp"
#include "base/version.hpp"
#include "command.hpp"
#include "exec/gpu_library.hpp"
#include "help.hpp"

namespace garonne::apps {
namespace {

// The subcommand that the words name, as far as they do.
const CLI::App& chosen_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const auto& word : words) {
    const auto named = command->get_subcommands(
        [&word](const CLI::App* candidate) { return candidate->get_name() == word; });
    if (named.empty()) break;
    command = named.front();
  }
  return *command;
}

// Keys by the names that nanoGPT, Megatron-LM and transformers give them; empty: none is known.
std::string known_elsewhere(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"lr", "optimizer.learning_rate"},
      {"min_lr", "optimizer.minimum_learning_rate"},
      {"wd", "optimizer.weight_decay"},
      {"warmup_iters", "optimizer.warmup_steps"},
      {"grad_clip", "optimizer.clip_norm"},
      {"n_layer", "model.layers"},
      {"num_layers", "model.layers"},
      {"n_head", "model.heads"},
      {"num_attention_heads", "model.heads"},
      {"n_embd", "model.hidden"},
      {"hidden_size", "model.hidden"},
      {"d_model", "model.hidden"},
      {"block_size", "model.sequence"},
      {"seq_length", "model.sequence"},
      {"vocab_size", "model.vocabulary"},
      {"batch_size", "train.micro_batch"},
      {"micro_batch_size", "train.micro_batch"},
      {"global_batch_size", "train.global_batch"},
      {"max_iters", "train.steps"},
      {"train_iters", "train.steps"},
      {"dtype", "train.precision"},
      {"output_dir", "run.directory"},
      {"out_dir", "run.directory"},
      {"save_interval", "checkpoint.every"},
      {"eval_interval", "evaluation.every"},
      {"log_interval", "log-every"}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = names.find(plain);
  return found == names.end() ? "" : found->second;
}

// The nearest of what could stand there, or what ends in the same word, as --train.learning_rate
// for
// --optimizer.learning_rate; empty where nothing is near.
std::string suggestion(const CLI::App& command, const std::string& word) {
  std::vector<std::string> known;
  if (word.rfind("--", 0) != 0) {
    for (const CLI::App* sub : command.get_subcommands({})) known.push_back(sub->get_name());
    return nearest_word(word, known);
  }
  const auto last = [](const std::string& name) {
    const std::size_t dot = name.find_last_of('.');
    return name.substr(dot != std::string::npos ? dot + 1 : name.find_first_not_of('-'));
  };
  // What others call it.
  const std::string usual = known_elsewhere(last(word));
  std::string alike;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) {
      known.push_back("--" + name);
      if (last(name) == last(word) || name == usual) alike = known.back();
    }
  }
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  if (!alike.empty()) return alike;
  return nearest_word(word, known);
}

// What CLI11 says, with the nearest known word for what it did not know.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  std::string message = error.what();
  const CLI::App& command = chosen_command(app, words);
  const bool no_command = !words.empty() && words[0].rfind("-", 0) != 0 && &command == &app;
  // Of a mistyped command CLI11 only says that one is missing, and it names what is left over from
  // the last to the first.
  if (no_command) {
    message = words[0] + " is no command";
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    // CLI11 names them from the last to the first.
    std::vector<std::string> left = app.remaining(true);
    message = "not expected:";
    for (const std::string& given : words) {
      const auto found = std::find(left.begin(), left.end(), given);
      if (found == left.end()) continue;
      left.erase(found);
      message += " " + printable(given);
    }
    for (const std::string& other : left) message += " " + printable(other);
  }
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (message.find(name) == std::string::npos) continue;
    const std::string near = suggestion(command, name);
    if (!near.empty()) message += fmt::format("; did you mean {}?", near);
  }
  return message + "; `garonne --help` shows what there is";
}

ExitCode run(int argc, char** argv, dist::Session& session) {
  CLI::App app(
      "Trains language models (GPT) and neural operators of fields (FNO, AFNO, SFNO) on processors "
      "and GPUs, within a budget of bytes that holds: a program for every rank, planned and proved "
      "before anything runs.",
      "garonne");
  app.formatter(help_formatter());
  app.footer(
      "Exit codes: 0 done, 2 usage, 3 no plan fits the budget, 4 communication, 5 data or "
      "checkpoint,\n"
      "6 refused while running, 75 stopped on request after a checkpoint, 128+n killed by signal "
      "n.\n\n"
      "Examples:\n"
      "  garonne data text corpus.txt --tokenizer tokenizer.json --output corpus.h5\n"
      "  garonne plan run.toml --ranks 8\n"
      "  mpirun -n 2 garonne train run.toml --grid.data 2 --memory.budget 4GiB\n"
      "  garonne eval runs/first --generate \"Once upon a time\"\n"
      "  garonne report runs/first");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  // Whoever adds to a command that a script makes up wins; commands take this over.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Chosen chosen;
  add_train(app, chosen);
  add_plan(app, chosen);
  add_profile(app, chosen);
  add_simulate(app, chosen);
  add_data(app, chosen);
  add_report(app, chosen);
  add_eval(app, chosen);
  add_forecast(app, chosen);
  add_check(app, chosen);
  add_checkpoint(app, chosen);
  add_bench(app, chosen);
  add_solve(app, chosen);
  add_stop(app, chosen);
  bool done = false;
  session.agree([&] {
    try {
      if (argc == 1) throw CLI::CallForHelp();
      app.parse(argc, argv);
    } catch (const CLI::Success& shown) {
      // --help and --version arrive as exceptions of the parser.
      if (session.rank() == 0) app.exit(shown);
      done = true;
    } catch (const CLI::ParseError& error) {
      throw ConfigError(usage_message(app, error, std::vector<std::string>(argv + 1, argv + argc)));
    }
  });
  dist::agree_on(session, [&] { return command_facts(app, done); });
  return done ? ExitCode::Done : chosen.action(session);
}

// Made in place: a session cannot be moved.
struct SessionHolder {
  dist::Session session = dist::Session::start();
};

int report(dist::Session* session, ExitCode code, const char* message) {
  const std::string shown = printable_message(message);
  if (session != nullptr && session->size() > 1) session->abort(code, shown);
  fmt::print(stderr, "garonne: {}\n", shown);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace garonne::apps

int main(int argc, char** argv) {
  using namespace garonne;
  // A file that grows past a limit shall come back as an error of the write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Before anything has threads.
  exec::set_gpu_environment();
  // Outlives the catch, so that what was thrown can still be told to the other ranks.
  std::unique_ptr<apps::SessionHolder> holder;
  dist::Session* session = nullptr;
  try {
    holder = std::make_unique<apps::SessionHolder>();
    session = &holder->session;
    return static_cast<int>(apps::run(argc, argv, *session));
  } catch (const dist::AgreedError& error) {
    std::fflush(stdout);
    if (session->rank() == 0) fmt::print(stderr, "garonne: {}\n", printable_message(error.what()));
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fflush(stdout);
    return apps::report(session, error.code(), error.what());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    // The tensor library puts a stack of addresses behind its messages, which says nothing to a
    // user.
    const std::string message = error.what();
    return apps::report(session, ExitCode::Other,
                        message.substr(0, message.find("\nException raised from")).c_str());
  }
}
