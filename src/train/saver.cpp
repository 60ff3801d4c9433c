#include "train/saver.hpp"

#include <algorithm>
#include <utility>

#include "train/stop/stop_file.hpp"

namespace garonne::train {

Saver::Saver(SavedRun run, std::int64_t step, dist::Session& session, StopWatch& stop)
    : run_(std::move(run)), session_(session), stop_(stop), saved_step_(step) {}

void Saver::save(std::int64_t step) {
  // Nothing is begun that the end of this process would leave half-written.
  stop_.gate().change_outside().unlock();
  save_checkpoint(run_.config.run.directory, run_.setup.model, run_.states, run_.state,
                  manifest_of(step), together());
  saved_step_ = step;
  session_.agree([&] {
    if (run_.keeper != nullptr) run_.keeper->saved(step, run_.config.checkpoint.keep);
  });
}

void Saver::save_other(const std::string& folder, const exec::ModelState& state,
                       std::int64_t step) {
  save_checkpoint(folder, run_.setup.model, {}, state, manifest_of(step), together());
}

void Saver::save_apart(std::int64_t step, const std::optional<StepMetrics>& unwritten,
                       FileMeeting& meeting) const {
  const std::string& directory = run_.config.run.directory;
  if (session_.rank() == 0 && unwritten && unwritten->step == step)
    MetricsFile(directory, step, [](const std::string&) {}).append(*unwritten);
  Together apart = members();
  apart.suffix = parting_suffix;
  apart.phase = [&](const std::function<void()>& work) { meeting.phase(work); };
  apart.gather = [&](const std::string& text) { return meeting.gather(text); };
  apart.first_text = [&](const std::string& text) { return meeting.first_text(text); };
  save_checkpoint(directory, run_.setup.model, run_.states, run_.state, manifest_of(step), apart);
}

Manifest Saver::manifest_of(std::int64_t step) const {
  Manifest manifest = run_.manifest;
  manifest.step = step;
  return manifest;
}

Together Saver::members() const {
  Together together;
  together.rank = session_.rank();
  together.ranks = session_.size();
  const Coordinates here = run_.setup.grid.coordinates_of(session_.rank());
  together.replica = here.data;
  together.replicas = run_.setup.grid.shape().data;
  together.writes_replicated = here.tensor == 0;
  return together;
}

Together Saver::together() {
  Together together = members();
  together.phase = [&](const std::function<void()>& work) { session_.agree(work); };
  together.gather = [&](const std::string& text) { return session_.gather(text); };
  together.first_text = [&](const std::string& text) {
    const std::vector<std::string> texts = session_.gather(text);
    const auto found =
        std::find_if(texts.begin(), texts.end(), [](const auto& one) { return !one.empty(); });
    return session_.broadcast(found == texts.end() ? "" : *found);
  };
  together.commit = [&](const std::function<void()>& work) {
    const auto lock = stop_.gate().change_outside();
    work();
  };
  return together;
}

}  // namespace garonne::train
