// Rotated steps: instructions of one step, which its updates on the host are, are carried out in
// the next one, beside passes that do not need what they make yet. Nothing else changes: where the
// list of a step is cut is moved. What they need of their step lies in buffers that are carried.
//
// A Program that is rotated is the list of a step that follows another one. The first step is that
// list without the instructions of the previous step, and what remains after the last one is those
// instructions alone, in their order.
#pragma once

#include "plan/program/program.hpp"

namespace garonne::plan {

bool is_rotated(const Program& program);

// The whole step that it is the rotation of: its own instructions, then those that it leaves to the
// next one. Itself where it is not rotated. What names an instruction that is not there or comes
// later names it afterwards, too, so that replay refuses it.
Program as_whole_step(const Program& program);

// Whether steps of the list, one after the other, do what whole steps do: what belongs to the
// previous step is an update on the host or brings what that makes, comes before everything of
// this step that uses or changes the same buffer, and has ended before the sums of this step are
// reported, with which a step may end. Throws ReplayError. Of one that is not rotated nothing is
// asked.
void check_rotation(const Program& program);

}  // namespace garonne::plan
