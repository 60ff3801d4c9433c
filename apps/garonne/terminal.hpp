// The terminal that is written to.
#pragma once

namespace garonne::apps {

// Its columns; `otherwise` where the standard output is no terminal, or one that does not say.
int terminal_columns(int otherwise);

}  // namespace garonne::apps
