#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <jerboa/base/atomic_file.h>
#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

namespace jerboa {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view action, int error) {
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), action, std::generic_category().message(error)));
}

constexpr std::size_t most_at_once = 1u << 30;  // Linux transfers at most 2 GiB per call

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0) {
    do {
      fd_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd_ < 0 && errno == EINTR);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  /// Closes the file and reports errors: some file systems report a failed write only on close.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_ = -1;
};

bool sync(const Descriptor& file) {
  int result = 0;
  do {
    result = ::fsync(file.get());
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/// A temporary file with a fresh name in the same folder as the target; removed unless it is renamed to the target.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) : target_(target), file_(create(target, path_)) {}
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void keep_mode_of(const struct stat& old) {
    if (::fchmod(file_.get(), old.st_mode & 07777) != 0) fail(target_, "set the permissions of its new version", errno);
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), most_at_once));
      if (written >= 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        fail(target_, "write", errno);
      }
    }
  }

  void take_name() {
    if (!sync(file_) || !file_.close()) fail(target_, "write", errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "replace", errno);
    path_.clear();
  }

 private:
  static Descriptor create(const fs::path& target, fs::path& path) {
    static std::atomic<unsigned> counter = 0;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      path = target;
      path.replace_filename(fmt::format(".{}.{}-{}.tmp", target.filename().string(), ::getpid(), counter++));
      Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
      if (file.is_open()) return file;
      if (errno != EEXIST) break;
    }
    const int error = errno;
    path.clear();
    fail(target, "create a temporary file beside it", error);
  }

  const fs::path& target_;
  fs::path path_;
  Descriptor file_;
};

std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status;
  if (errno != ENOENT) fail(path, "write", errno);
  return std::nullopt;
}

}  // namespace

FileReader::FileReader(const fs::path& path) : path_(path) {
  Descriptor file(path, O_RDONLY | O_NONBLOCK);  // so that opening a pipe does not block; a pipe is refused below
  if (!file.is_open()) fail(path, "open", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "open", errno);
  if (!S_ISREG(status.st_mode)) throw FileError(fmt::format("{}: cannot open: not a file", path.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
  descriptor_ = file.release();
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const std::uint64_t end = offset + bytes.size();
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), most_at_once), static_cast<off_t>(offset));
    if (count == 0)
      throw FileError(fmt::format("{}: ends at byte {}, but data up to byte {} was expected{}", path_.string(), offset,
                                  end, end <= size_ ? ": it was truncated while being read" : ""));
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    } else if (errno != EINTR) {
      fail(path_, "read", errno);
    }
  }
}

FileContent::FileContent(const fs::path& path) : path_(path) {
  const FileReader file(path);
  bytes_.resize(static_cast<std::size_t>(file.size()));
  file.read(0, bytes_);
}

struct AtomicFile::State {
  explicit State(fs::path to) : target(std::move(to)), file(target) {}
  fs::path target;
  TemporaryFile file;
};

AtomicFile::AtomicFile(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  if (target.empty()) fail(path, "write", error ? error.value() : ENOENT);
  const auto old = status_of(target);
  if (old && !S_ISREG(old->st_mode)) throw FileError(fmt::format("{}: cannot write: not a file", path.string()));
  state_ = std::make_unique<State>(std::move(target));
  if (old) state_->file.keep_mode_of(*old);
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(std::span<const std::byte> bytes) { state_->file.write(bytes); }

void AtomicFile::commit() {
  state_->file.take_name();
  const fs::path folder = state_->target.has_parent_path() ? state_->target.parent_path() : fs::path(".");
  const Descriptor entries(folder, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a folder and return EINVAL: nothing more can be done.
  if (!entries.is_open() || (!sync(entries) && errno != EINVAL)) fail(folder, "sync", errno);
}

void write_file_atomically(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  AtomicFile file(path);
  for (const auto piece : pieces) file.write(piece);
  file.commit();
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const std::array pieces{std::as_bytes(std::span(content.data(), content.size()))};
  write_file_atomically(path, pieces);
}

}  // namespace jerboa
