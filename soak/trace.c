/* Log all changes below the folder TRACED to the file TRACE; preload this library with LD_PRELOAD.

   A record has a letter, three numbers of 8 bytes, and two byte strings, each after its length in 4
   bytes. Files and folders are identified by their inode numbers.

     W file, offset, -, data, -            write
     T file, size, -, -, -                 change of the size
     S file or folder, -, -, -, -          sync
     N folder or 0, file, -, name, -       new file, possibly without a name
     M folder, new folder, -, name, -      new folder
     L folder, file, -, name, -            another name of a file
     U folder, -, -, name, -               deleted name
     R folder, new folder, file, name, new name
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static int trace = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TRACED"), *file = getenv("TRACE");
    if (!folder || !file || !realpath(folder, root)) return;
    trace = REAL(open)(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_below(const char *path) {
    size_t length = strlen(root);
    return trace >= 0 && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* Return whether a descriptor is of a file or folder below the root, also of one without a name. */
static int is_traced(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static uint64_t inode_of(int descriptor) {
    struct stat found;
    return fstat(descriptor, &found) ? 0 : found.st_ino;
}

static uint64_t inode_at(int folder, const char *path) {
    struct stat found;
    return fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
}

/* Find the folder of a path; return its inode, or 0 if it is not below the root. */
static uint64_t parent_of(int folder, const char *path, char *name) {
    char copy[PATH_MAX], other[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(other, sizeof other, "%s", path);
    snprintf(name, NAME_MAX + 1, "%s", basename(other));
    int parent = REAL(openat)(folder, dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return 0;
    uint64_t inode = is_traced(parent) ? inode_of(parent) : 0;
    REAL(close)(parent);
    return inode;
}

static void put(const void *data, size_t size) {
    while (size > 0) {
        ssize_t written = REAL(write)(trace, data, size);
        if (written <= 0) abort();
        data = (const char *)data + written;
        size -= written;
    }
}

static void record(char kind, uint64_t a, uint64_t b, uint64_t c, const void *first, uint32_t size,
                   const char *second) {
    uint64_t numbers[3] = {a, b, c};
    uint32_t other = second ? strlen(second) : 0;
    put(&kind, 1);
    put(numbers, sizeof numbers);
    put(&size, sizeof size);
    put(&other, sizeof other);
    put(first, size);
    put(second, other);
}

static void record_name(char kind, uint64_t folder, uint64_t file, const char *name) {
    record(kind, folder, file, 0, name, strlen(name), NULL);
}

/* Run a call and record it before another thread changes a file. */
#define LOCKED(call, ...)                           \
    pthread_mutex_lock(&mutex);                     \
    __typeof__(call) result = (call);               \
    int error = errno;                              \
    if (trace >= 0 && result >= 0) { __VA_ARGS__; } \
    pthread_mutex_unlock(&mutex);                   \
    errno = error;                                  \
    return result;

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char name[NAME_MAX + 1] = "";
    uint64_t parent = 0;
    if ((flags & O_CREAT) && trace >= 0 && !inode_at(folder, path))
        parent = parent_of(folder, path, name);
    LOCKED(REAL(openat)(folder, path, flags, mode), {
        if (parent || ((flags & O_TMPFILE) == O_TMPFILE && is_traced(result)))
            record_name('N', parent, inode_of(result), name);
        else if ((flags & O_TRUNC) && is_traced(result)) record('T', inode_of(result), 0, 0, "", 0, NULL);
    })
}

#define MODE                                            \
    mode_t mode = 0;                                    \
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode = va_arg(rest, mode_t);                    \
        va_end(rest);                                   \
    }

int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags, mode); }

ssize_t write(int file, const void *data, size_t size) {
    LOCKED(REAL(write)(file, data, size), {
        if (file != trace && is_traced(file)) {
            uint64_t end = lseek(file, 0, SEEK_CUR);
            record('W', inode_of(file), end - result, 0, data, result, NULL);
        }
    })
}

static ssize_t written_at(int file, const void *data, size_t size, off_t offset) {
    LOCKED(REAL(pwrite)(file, data, size, offset), {
        if (is_traced(file)) record('W', inode_of(file), offset, 0, data, result, NULL);
    })
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) { return written_at(file, data, size, offset); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) { return written_at(file, data, size, offset); }

static int resized(int file, off_t size) {
    LOCKED(REAL(ftruncate)(file, size), {
        if (is_traced(file)) record('T', inode_of(file), size, 0, "", 0, NULL);
    })
}

int ftruncate(int file, off_t size) { return resized(file, size); }
int ftruncate64(int file, off64_t size) { return resized(file, size); }

int fsync(int file) {
    LOCKED(REAL(fsync)(file), { if (is_traced(file)) record('S', inode_of(file), 0, 0, "", 0, NULL); })
}

int fdatasync(int file) {
    LOCKED(REAL(fdatasync)(file), { if (is_traced(file)) record('S', inode_of(file), 0, 0, "", 0, NULL); })
}

int mkdirat(int folder, const char *path, mode_t mode) {
    char name[NAME_MAX + 1];
    LOCKED(REAL(mkdirat)(folder, path, mode), {
        uint64_t parent = parent_of(folder, path, name);
        if (parent) record_name('M', parent, inode_at(folder, path), name);
    })
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from, const char *path, int to, const char *target, int flags) {
    char name[NAME_MAX + 1];
    LOCKED(REAL(linkat)(from, path, to, target, flags), {
        uint64_t parent = parent_of(to, target, name);
        if (parent) record_name('L', parent, inode_at(to, target), name);
    })
}

int link(const char *path, const char *target) { return linkat(AT_FDCWD, path, AT_FDCWD, target, 0); }

int unlinkat(int folder, const char *path, int flags) {
    char name[NAME_MAX + 1];
    LOCKED(REAL(unlinkat)(folder, path, flags), {
        uint64_t parent = parent_of(folder, path, name);
        if (parent) record_name('U', parent, 0, name);
    })
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int renameat(int from, const char *path, int to, const char *target) {
    char name[NAME_MAX + 1], other[NAME_MAX + 1];
    LOCKED(REAL(renameat)(from, path, to, target), {
        uint64_t old = parent_of(from, path, name), parent = parent_of(to, target, other);
        if (old || parent)
            record('R', old, parent, inode_at(to, target), name, strlen(name), other);
    })
}

int rename(const char *path, const char *target) { return renameat(AT_FDCWD, path, AT_FDCWD, target); }
