#include "plan/step/message_form.hpp"

#include <string>

#include "base/error.hpp"

namespace garonne::plan {

MessageForm message_form(std::string_view name) {
  if (name == "auto") return MessageForm::Auto;
  if (name == "whole") return MessageForm::Whole;
  expect(name == "scattered", "no form of messages is called " + std::string(name));
  return MessageForm::Scattered;
}

MessageForm decided_message_form(MessageForm form, const GridShape& shape, int ranks_on_node) {
  if (form != MessageForm::Auto) return form;
  const bool groups_in_nodes = ranks_on_node % shape.tensor == 0;
  // Where some stage ends within a node, the slowest of its messages leave the node all the same.
  const bool leaves_nodes = shape.ranks() > ranks_on_node;
  return groups_in_nodes && leaves_nodes && shape.tensor > 1 ? MessageForm::Scattered
                                                             : MessageForm::Whole;
}

}  // namespace garonne::plan
