#include "train/trainer.hpp"

#include "command.hpp"

namespace garonne::apps {

void add_train(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      app.add_subcommand("train", "train as a run file says, under mpirun or alone");
  const auto config = add_config_options(*command);
  const auto options = std::make_shared<train::TrainOptions>();
  command->add_option(
      "--program", options->program_directory,
      "where to write the Program of every rank as it was run, measured [<run>/program]");
  command->add_option(
      "--run-program", options->given_programs,
      "carry out the Programs of this folder, as `plan --program` or an earlier run "
      "has written them, in the place of planning");
  command->add_option(
      "--gradients", options->gradients_directory,
      "where to write the gradients of the first step, before clipping, as a checkpoint");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      return train::train(loaded, session, *options);
    };
  });
}

}  // namespace garonne::apps
