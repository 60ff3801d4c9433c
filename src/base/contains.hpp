// Whether a list has an element, for lists that are not sorted.
#pragma once

#include <algorithm>
#include <iterator>

namespace garonne {

template <class List, class Element>
bool contains(const List& list, const Element& element) {
  return std::find(std::begin(list), std::end(list), element) != std::end(list);
}

}  // namespace garonne
