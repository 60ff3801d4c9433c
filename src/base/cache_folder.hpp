// The folder of what is measured or solved once, which nobody but its user may write to: what lies
// in it decides how models are run.
#pragma once

#include <optional>
#include <string>

namespace garonne {

// $GARONNE_CACHE, else $XDG_CACHE_HOME/garonne, else $HOME/.cache/garonne, else
// garonne-cache-<user id> in $TMPDIR or /tmp.
std::string cache_folder();

// Why `folder` is not used: it is a link in a folder of everybody's, belongs to another user, or
// others may write to it. Empty where it is used, or can be made.
std::string cache_refusal(const std::string& folder);

// The text of a file of at most `most_json_bytes` in it; none where there is no such file, where it
// is another user's or no regular file, or where the folder is not used.
std::optional<std::string> read_cache_file(const std::string& folder, const std::string& name);

// Makes the folder, for its user alone, and writes the file beside its place first. False where
// that cannot be done, which leaves nothing behind.
bool write_cache_file(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace garonne
