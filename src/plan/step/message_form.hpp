// In what form a value that all tensor ranks have goes to another stage, with its gradient.
#pragma once

#include <string_view>

#include "base/grid.hpp"

namespace garonne::plan {

enum class MessageForm {
  Auto,       // as the nodes make it faster
  Whole,      // each tensor rank sends all of it to the one in its place
  Scattered,  // each sends one part, and those who receive gather them: the scatter-gather of
              // Narayanan et al. 2021, section 4.1 (arXiv 2104.04473)
};

// Of the names of grid.messages: "auto", "whole", "scattered". InternalError for others.
MessageForm message_form(std::string_view name);

// Whole or scattered, the same on all ranks. Auto is scattered where stages that follow each other
// are on different nodes and tensor groups on one. Rank r is on node r / ranks_on_node.
MessageForm decided_message_form(MessageForm form, const GridShape& shape, int ranks_on_node);

}  // namespace garonne::plan
