#include "headroom/memory/annotation.h"

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace headroom::memory {
namespace {

// Plain data: reading it takes no lock, and it needs neither construction nor destruction, so that
// it serves allocations made while a thread or the process ends.
thread_local constinit AllocationContext t_context{};

// Every path ever made. A path is its parent and a name, so a layer that is entered a million times
// is looked up by (parent, name) without building the whole path.
class Interner {
 public:
  AnnotationId intern(AnnotationId parent, std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (parent >= paths_.size()) parent = 0;
    const auto found = ids_.find(Key{parent, name});
    if (found != ids_.end()) return found->second;
    const std::string& outer = paths_[parent];
    std::string path = outer.empty() ? std::string(name) : outer + "/" + std::string(name);
    const auto id = static_cast<AnnotationId>(paths_.size());
    paths_.push_back(std::move(path));
    // The name is the end of the path just stored, which never moves.
    const std::string& stored = paths_.back();
    ids_.emplace(Key{parent, std::string_view(stored).substr(stored.size() - name.size())}, id);
    return id;
  }

  std::string path(AnnotationId id) {
    const std::lock_guard lock(mutex_);
    return id < paths_.size() ? paths_[id] : std::string();
  }

 private:
  using Key = std::pair<AnnotationId, std::string_view>;

  std::mutex mutex_;
  std::deque<std::string> paths_{""};  // by id; a deque keeps its strings in place
  std::map<Key, AnnotationId> ids_;
};

// Never destroyed: objects that outlive main may still be freed and reported.
Interner& interner() {
  static auto* const instance = new Interner;
  return *instance;
}

}  // namespace

AnnotationId intern_annotation(AnnotationId parent, std::string_view name) {
  if (name.empty()) return parent;
  return interner().intern(parent, name);
}

std::string annotation_path(AnnotationId id) { return interner().path(id); }

AllocationContext current_context() noexcept { return t_context; }

ContextScope::ContextScope(AllocationContext context) noexcept
    : outer_(std::exchange(t_context, context)) {}

ContextScope::~ContextScope() { t_context = outer_; }

}  // namespace headroom::memory
