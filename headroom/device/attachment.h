// State that a layer above keeps with a device: the handles of a backend's libraries, for example.
#pragma once

namespace headroom::device {

class Attachment {
 public:
  Attachment() = default;
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  virtual ~Attachment() = default;
};

}  // namespace headroom::device
