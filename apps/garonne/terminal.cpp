#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace garonne::apps {

int terminal_columns(int otherwise) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : otherwise;
}

}  // namespace garonne::apps
