#include "csrc/communicator/flight_dump.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "csrc/base/process_id.h"
#include "csrc/communicator/flight_json.h"
#include "csrc/topology/host_cpus.h"

namespace taco {
namespace {

// The default folder is nobody's to tidy up: only so many files stay in it.
constexpr size_t kMostFiles = 256;

std::string defaultFolder() {
  std::error_code trouble;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(trouble);
  return str(trouble ? "/tmp" : temporary.string(), "/taco-dumps-", ::geteuid());
}

// The name of the default folder can be guessed, and its parent is everybody's: it must be a
// folder, ours, and closed to others.
void requireOwn(const std::string& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) {
    throw systemError(str("cannot look at the folder ", folder), errno);
  }
  if (S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & 0077) == 0) return;
  throw Error(ErrorCode::kSystem,
              str(folder,
                  " is not a folder that belongs to this user and to nobody else (mode 0700): "
                  "remove it, or name another one in TACO_DUMP_DIR"));
}

void makeFolder(const std::string& folder) {
  for (size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int why = errno;
      struct stat facts {};
      // A part that is there already may refuse to be made for any reason (a read-only parent).
      if (::stat(part.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
        throw systemError(str("cannot make the folder ", part, " for the flight record"), why);
      }
    }
    if (at == std::string::npos) break;
  }
  if (folder == defaultFolder()) requireOwn(folder);
}

bool isDump(const std::string& name) {
  return name.rfind("rank-", 0) == 0 && name.size() > 5 && name.substr(name.size() - 5) == ".json";
}

void removeOldest(const std::string& folder) {
  DIR* const listing = ::opendir(folder.c_str());
  if (listing == nullptr) return;
  std::vector<std::pair<time_t, std::string>> files;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = str(folder, "/", entry->d_name);
    struct stat facts {};
    if (isDump(entry->d_name) && ::lstat(path.c_str(), &facts) == 0) {
      files.emplace_back(facts.st_mtime, path);
    }
  }
  ::closedir(listing);
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMostFiles < files.size(); ++i) ::unlink(files[i].second.c_str());
}

void writeFile(const std::string& path, const std::string& text) {
  const std::string temporary = str(path, ".", randomHex(4));
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) throw systemError(str("cannot create ", temporary), errno);
  size_t written = 0;
  int why = 0;
  while (written < text.size() && why == 0) {
    const ssize_t some = ::write(fd, text.data() + written, text.size() - written);
    if (some >= 0) {
      written += static_cast<size_t>(some);
    } else if (errno != EINTR) {
      why = errno;
    }
  }
  if (::close(fd) != 0 && why == 0) why = errno;
  if (why == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return;
  ::unlink(temporary.c_str());
  throw systemError(str("cannot write ", path), why);
}

std::string forFileNames(std::string text) {
  for (char& c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    if (!plain) c = '-';
  }
  return text.substr(0, 64);
}

}  // namespace

std::optional<std::string> flightFolder(const Settings& settings) {
  if (settings.dumpFolder.empty()) return defaultFolder();
  if (settings.dumpFolder == "none") return std::nullopt;
  return settings.dumpFolder;
}

std::string dumpFlightRecord(const std::string& folder, const std::string& reason) {
  FlightDump dump;
  dump.host = hostName();
  dump.pid = ::getpid();
  dump.reason = reason;
  dump.operations = FlightRecord::ofProcess().operations();
  dump.forgotten = FlightRecord::ofProcess().forgotten();
  dump.groups = FlightGroups::all();
  dump.now = Clock::now();
  dump.wall = std::chrono::system_clock::now();
  if (!dump.groups.empty()) {
    const FlightGroup& first = *dump.groups.front().group;
    const auto at = static_cast<size_t>(first.rank);
    dump.rank = at < first.globalRanks.size() ? first.globalRanks[at] : first.rank;
  }
  makeFolder(folder);
  const std::string path =
      str(folder, "/rank-", dump.rank, "-", forFileNames(dump.host), "-", dump.pid, ".json");
  writeFile(path, toJson(dump));
  if (folder == defaultFolder()) removeOldest(folder);
  return path;
}

void dumpAfterFailure(const std::optional<std::string>& folder, const FlightGroup& group,
                      const Error& why) noexcept {
  if (!folder) return;
  try {
    const std::string path =
        dumpFlightRecord(*folder, str("group '", group.name, "' failed: ", why.what()));
    log(LogLevel::kWarn,
        str("rank ", group.rank, " of group '", group.name,
            "' has failed; its last operations are in ", path, ", and `taco explain-hang ", *folder,
            "` compares them with those of the other ranks"));
  } catch (const std::exception& error) {
    try {
      log(LogLevel::kWarn, str("the flight record could not be written: ", error.what()));
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): no memory for a sentence; the failure itself counts
    }
  }
}

}  // namespace taco
