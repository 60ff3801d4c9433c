#include "train/saver.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/seconds.hpp"
#include "train/stop/stop_file.hpp"

namespace garonne::train {

Saver::Saver(SavedRun run, std::int64_t step, dist::Session& session, StopWatch& stop)
    : run_(std::move(run)), session_(session), stop_(stop), saved_step_(step) {}

Saver::~Saver() {
  leave();
}

void Saver::leave() {
  writer_.leave();
  // As far as it can be: other ranks may still write there.
  if (begun_ && session_.rank() == 0) begun_->checkpoint.remove();
  begun_.reset();
}

// Returns where a process that ends leaves nothing of the loop half-written: never once the watch
// holds it.
void Saver::expect_time_to_write() {
  stop_.gate().change_outside().unlock();
}

void Saver::is_in_place(std::int64_t step) {
  saved_step_ = step;
  session_.agree([&] {
    const auto& keys = run_.config.checkpoint;
    if (run_.lock != nullptr) run_.lock->check_now();
    if (run_.keeper != nullptr) run_.keeper->saved(step, keys.keep, keys.keep_minutes);
  });
}

SavedStep Saver::save(std::int64_t step) {
  expect(!under_way(), "what is being written is finished first");
  const auto since = Clock::now();
  expect_time_to_write();
  save_checkpoint(run_.config.run.directory, run_.setup.model, run_.states, run_.state,
                  manifest_of(step), together());
  is_in_place(step);
  const double seconds = seconds_since(since);
  return {step, seconds, seconds};
}

void Saver::begin(std::int64_t step) {
  expect(can_begin() && !under_way(), "one checkpoint at a time is written beside the loop");
  const auto since = Clock::now();
  expect_time_to_write();
  begun_.emplace(
      Begun{PartialCheckpoint(run_.config.run.directory, manifest_of(step), together()), since});
  // Not before every rank has its copy is anything written: an error here leaves nothing.
  std::vector<RankTensor> copy;
  try {
    session_.agree([&] {
      copy = copy_of_state(run_.setup.model, run_.states, run_.state, members(),
                           run_.copy_room.value());
    });
  } catch (const Error&) {
    leave();
    throw;
  }
  writer_.begin(begun_->checkpoint.folder(), session_.rank(), std::move(copy));
  begun_->waited_seconds = seconds_since(since);
}

std::int64_t Saver::progress() const {
  switch (writer_.state()) {
    case BackgroundWriter::State::Writing:
      return Writing;
    case BackgroundWriter::State::Failed:
      return Failed;
    default:
      return Done;
  }
}

SavedStep Saver::finish() {
  expect(under_way(), "nothing was begun to be written");
  const auto waits_since = Clock::now();
  Begun begun = std::move(*begun_);
  begun_.reset();
  writer_.wait();
  // The watch abandons the writing only once it holds the loop, which comes no further than this
  // then: nobody hears of an error that was none.
  expect_time_to_write();
  begun.checkpoint.publish([&] { return writer_.take(); });
  is_in_place(begun.checkpoint.step());
  return {begun.checkpoint.step(), seconds_since(begun.since),
          begun.waited_seconds + seconds_since(waits_since)};
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
  CollectivePhases apart = members();
  apart.suffix = parting_suffix;
  apart.phase = [&](const std::function<void()>& work) { meeting.phase(work); };
  apart.gather = [&](const std::string& text) { return meeting.gather(text); };
  apart.first_text = [&](const std::string& text) { return meeting.first_text(text); };
  save_checkpoint(directory, run_.setup.model, run_.states, run_.state, manifest_of(step), apart);
}

Manifest Saver::manifest_of(std::int64_t step) const {
  Manifest manifest = run_.manifest;
  manifest.step = step;
  manifest.saved_at = static_cast<std::int64_t>(seconds_since_1970());
  return manifest;
}

CollectivePhases Saver::members() const {
  CollectivePhases together;
  together.rank = session_.rank();
  together.ranks = session_.size();
  const Coordinates here = run_.setup.grid.coordinates_of(session_.rank());
  together.replica = here.data;
  together.replicas = run_.setup.grid.shape().data;
  together.writes_replicated = here.tensor == 0;
  return together;
}

CollectivePhases Saver::together() {
  CollectivePhases together = members();
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
    if (run_.lock != nullptr) run_.lock->check_now();
    work();
  };
  // Another run may write one of the same name by now.
  together.may_remove = [this] { return run_.lock == nullptr || !run_.lock->lost(); };
  return together;
}

}  // namespace garonne::train
