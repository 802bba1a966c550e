#pragma once

namespace taco {

// Owns one descriptor that must not outlive this process in its forked children.
//
// A forked child (a DataLoader worker) has a copy of every descriptor. As long as it keeps the copy
// of a connection, the death of its parent stays hidden from the peers, because the kernel ends a
// connection with its last descriptor. CLOEXEC does not help: such children do not exec. So every
// descriptor is listed, and a fork handler closes the child's copies: a quiet close of a copy,
// which the connection itself does not feel. Objects that the child has inherited then hold numbers
// that mean nothing; close() and the destructor do nothing there.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd);  // takes it over; -1 is "none"
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
  int creator_ = 0;  // process id
};

}  // namespace taco
