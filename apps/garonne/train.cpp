#include "train/trainer.hpp"

#include "base/key_limits.hpp"
#include "command.hpp"
#include "counts.hpp"

namespace garonne::apps {
namespace {

void add_program_options(CLI::App& command, train::TrainOptions& options) {
  command
      .add_option(
          "--program", options.program_directory,
          "where to write the Program of every rank as it was run, measured [<run>/program]")
      ->type_name("DIR");
  command
      .add_option("--run-program", options.given_programs,
                  "carry out the Programs of this folder, as `plan --program` or an earlier run "
                  "has written them, in the place of planning")
      ->type_name("DIR");
  command
      .add_option(
          "--gradients", options.gradients_directory,
          "where to write the gradients of the first step, before clipping, as a checkpoint")
      ->type_name("DIR");
}

// What a run begins from or goes on with.
void add_beginning_options(CLI::App& command, train::TrainOptions& options) {
  const CLI::Validator names_something(
      [](const std::string& name) {
        return name.empty() ? std::string("is empty; name a tensor, or leave the option out")
                            : std::string();
      },
      "");
  command
      .add_option(
          "--init-from", options.init_from,
          "a checkpoint, or a run directory: a new run starts with its parameters, and with an "
          "optimizer and data of its own")
      ->type_name("DIR");
  command
      .add_option("--init-change", options.init_changes,
                  "keys that may be others than the checkpoint of --init-from was trained with, "
                  "though the same parameters compute something else then, as model.rope_theta "
                  "for longer texts; with commas")
      ->type_name("KEY")
      ->delimiter(',');
  command
      .add_option(
          "--allow-missing", options.allowed.missing,
          "tensors that the checkpoint may lack: they begin with the values of step 0; with "
          "commas, NAME* = all that begin so. [model] and [optimizer] may then change; with "
          "--init-from parameters of its checkpoint")
      ->type_name("NAME")
      ->check(names_something)
      ->delimiter(',');
  command
      .add_option("--allow-unused", options.allowed.unused,
                  "tensors of the checkpoint that the model need not have; likewise")
      ->type_name("NAME")
      ->check(names_something)
      ->delimiter(',');
  command
      .add_option("--change", options.changes,
                  "go on with another value of this key than the run was made with; give it again "
                  "for each. The step and both values go into the manifest of checkpoints")
      ->type_name("KEY")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_watching_options(CLI::App& command, train::TrainOptions& options) {
  constexpr std::int64_t most_traced = 1000;
  CLI::Option* trace = command
                           .add_option("--trace", options.trace.path,
                                       "write steps as they ran there, for Perfetto: "
                                       "instructions, lanes, messages, live bytes")
                           ->type_name("FILE");
  command
      .add_option("--trace-from", options.trace.first_step,
                  "first step of the trace, one that is run [the third]")
      ->needs(trace)
      ->check(count(1, most_steps));
  command.add_option("--trace-steps", options.trace.steps, "steps in the trace")
      ->needs(trace)
      ->check(count(1, most_traced))
      ->capture_default_str();
  command
      .add_option("--prometheus", options.prometheus_file,
                  "keep the state of the run there as text that Prometheus collects")
      ->type_name("FILE");
}

}  // namespace

void add_train(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      app.add_subcommand("train", "train as a run file says, under mpirun or alone");
  const auto config = add_config_options(*command);
  const auto options = std::make_shared<train::TrainOptions>();
  add_program_options(*command, *options);
  add_beginning_options(*command, *options);
  add_watching_options(*command, *options);
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      return train::train(loaded, session, *options);
    };
  });
}

}  // namespace garonne::apps
