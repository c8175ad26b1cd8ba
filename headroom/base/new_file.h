// A file that appears whole or not at all. What is written goes into a file without a name in the
// same folder, and gets the name when all of it is on the disk; until then, and when anything
// fails, whatever had the name before stays as it was.
//
//   NewFile file(path, true);
//   file.write(bytes);
//   file.commit();
//
// A link keeps being one: the file that it leads to is replaced, or made.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// All functions throw Error; the message does not name the file, which the caller knows: "it exists
// already ...".
class NewFile {
 public:
  // Without `overwrite`, a name that is taken is refused: here, and again in commit().
  NewFile(const std::string& path, bool overwrite);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  // Without commit() nothing stays.
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  void open_beside();
  [[nodiscard]] int open_unnamed() const;
  void give_name();
  void take_name_of_new();
  [[nodiscard]] std::string name_beside() const;

  std::string path_;       // of the file itself, where a link was given
  std::string temporary_;  // empty where the file has no name yet
  bool overwrite_;
  std::FILE* file_ = nullptr;
};

// Throws Error when NewFile would refuse the name: taken and not to be overwritten, or by something
// that is no file.
void check_new_file(const std::string& path, bool overwrite);

}  // namespace headroom
