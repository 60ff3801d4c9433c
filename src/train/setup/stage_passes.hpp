// How the stages of a run have the passes that their schedule lets overlap, for people.
#pragma once

#include <string>
#include <vector>

#include "dist/session.hpp"
#include "plan/program/program.hpp"
#include "plan/step/passes_in_turn.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// How a stage runs the passes that its order lets overlap, as its Program has it.
enum class StagePasses { NoneToOverlap, Overlap, InTurn };
StagePasses passes_of(const Setup& stage, const plan::Program& program);

// Lines that say how stages run the passes that the schedule of `whole` lets overlap; empty where
// it lets none. `given`: the Programs are not those that this budget made. Throws as
// pipeline_schedule_of.
std::string passes_note(const Setup& whole, const std::vector<StagePasses>& stages, bool given);
// The same of a run, whose rank has this stage and Program. Collective.
std::string passes_note(const Setup& whole, const Setup& stage, const plan::Program& program,
                        bool given, dist::Session& session);

// The sentence of a schedule whose passes overlap, and why they do not, where it is not for want of
// memory; for lines as passes_note() makes.
std::string passes_that_overlap(const std::string& schedule);
std::string reason_in_turn(plan::PassesInTurn why);

}  // namespace garonne::train
