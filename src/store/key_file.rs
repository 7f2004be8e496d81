//! The files that hold the secrets of a data directory.
//!
//! ```text
//! DATA/issuer/               0700
//! DATA/issuer/ed25519.pk8    0600   the private key of the embedded issuer: PKCS#8, DER
//! DATA/wallets/              0700
//! DATA/wallets/master.key    0600   the key from which credentials are derived: 32 random bytes
//! ```
//!
//! A file appears complete or not at all and is never replaced: the key is written to a temporary
//! file, synced, and hard-linked to the final name. However many processes do this, the link
//! succeeds for exactly one of them; the others read the key that it wrote.
//!
//! This module also reads secrets stored by other programs, under the same rules.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::error::KeyRejected;
use aws_lc_rs::signature::Ed25519KeyPair;

/// Size limit of a key file, in bytes. An Ed25519 key takes less than 100.
pub(crate) const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Number of bytes of the master key of wallets.
pub const MASTER_KEY_BYTES: usize = 32;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The permission bits of the group and of others.
const FOREIGN_MODE: u32 = 0o077;

/// A secret that a data directory may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFile {
    /// The private key of the embedded issuer. Without it, the access tokens signed with it are
    /// void, and new ones can be minted.
    Issuer,
    /// The key from which the credentials of all wallets are derived. Without it, all of them are
    /// void, and stay so.
    Wallets,
}

impl KeyFile {
    /// All secrets.
    pub const ALL: [Self; 2] = [Self::Issuer, Self::Wallets];

    /// Returns the path of this key in a data directory.
    pub fn path(self, data_directory: &Path) -> PathBuf {
        self.directory(data_directory).join(match self {
            Self::Issuer => "ed25519.pk8",
            Self::Wallets => "master.key",
        })
    }

    fn directory(self, data_directory: &Path) -> PathBuf {
        data_directory.join(match self {
            Self::Issuer => "issuer",
            Self::Wallets => "wallets",
        })
    }

    /// Loads the key file. If there is none, first stores the key that `generate` returns.
    ///
    /// Creates missing directories with private permissions. Everything is on disk when this
    /// returns.
    pub fn load_or_create(
        self,
        data_directory: &Path,
        generate: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, KeyFileError> {
        let directory = self.directory(data_directory);
        let path = self.path(data_directory);
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&directory);
        made.map_err(failed("create", &directory))?;
        let opened = File::open(&directory).map_err(failed("open", &directory))?;
        refuse_too_open(&opened, &directory, DIRECTORY_MODE)?;
        if load(&path)?.is_none() {
            let content = generate().ok_or(KeyFileError::Generate)?;
            store_unless_there(&directory, &path, &content)?;
        }
        // Sync even if the file was already there: the process that created it may not have synced
        // yet, and a key that a power failure could still erase must not be used.
        opened.sync_all().map_err(failed("sync", &directory))?;
        let parent = File::open(data_directory).map_err(failed("open", data_directory))?;
        parent.sync_all().map_err(failed("sync", data_directory))?;
        // Return the stored key and not ours: another process may have been faster.
        load(&path)?.ok_or(KeyFileError::Removed { path })
    }

    /// Loads the key file of this data directory, if there is one. Fails if other users may access
    /// the file or its directory.
    pub fn load_existing(self, data_directory: &Path) -> Result<Option<Vec<u8>>, KeyFileError> {
        let directory = self.directory(data_directory);
        match File::open(&directory) {
            Ok(opened) => refuse_too_open(&opened, &directory, DIRECTORY_MODE)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", &directory)(error)),
        }
        load(&self.path(data_directory))
    }

    /// Checks that the key file of this data directory, if there is one, is private and holds a
    /// key.
    pub fn check(self, data_directory: &Path) -> Result<(), KeyFileError> {
        let Some(content) = self.load_existing(data_directory)? else { return Ok(()) };
        match self {
            Self::Issuer => key_pair(data_directory, &content).map(drop),
            Self::Wallets => master_key(data_directory, &content).map(drop),
        }
    }

    /// Copies the key file, with its permissions, into a data directory that has none. Returns
    /// false if there is no file to copy.
    pub fn copy(self, from: &Path, to: &Path) -> Result<bool, KeyFileError> {
        let Some(content) = load(&self.path(from))? else { return Ok(false) };
        self.load_or_create(to, || Some(content))?;
        Ok(true)
    }
}

/// Parses the issuer's key pair in the content of this data directory's key file.
pub fn key_pair(data_directory: &Path, content: &[u8]) -> Result<Ed25519KeyPair, KeyFileError> {
    let path = || KeyFile::Issuer.path(data_directory);
    let unusable = |reason| KeyFileError::Unusable { path: path(), reason };
    Ed25519KeyPair::from_pkcs8(content).map_err(unusable)
}

/// Generates a master key of wallets, or `None` if the operating system provides no randomness.
pub fn generate_master_key() -> Option<[u8; MASTER_KEY_BYTES]> {
    let mut key = [0; MASTER_KEY_BYTES];
    getrandom::fill(&mut key).ok()?;
    Some(key)
}

/// Loads the master key of wallets of this data directory. If there is none, first generates one.
pub fn load_or_create_master_key(
    data_directory: &Path,
) -> Result<[u8; MASTER_KEY_BYTES], KeyFileError> {
    let generate = || generate_master_key().map(Vec::from);
    let content = KeyFile::Wallets.load_or_create(data_directory, generate)?;
    master_key(data_directory, &content)
}

fn master_key(
    data_directory: &Path,
    content: &[u8],
) -> Result<[u8; MASTER_KEY_BYTES], KeyFileError> {
    let path = || KeyFile::Wallets.path(data_directory);
    content.try_into().map_err(|_| KeyFileError::NoMasterKey { path: path(), bytes: content.len() })
}

/// Reads a file that only its owner may access. `None` if it does not exist.
pub fn load(path: &Path) -> Result<Option<Vec<u8>>, KeyFileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    // Check the open file, not its path, which could be replaced in between.
    refuse_too_open(&file, path, FILE_MODE)?;
    let mut content = Vec::new();
    let read = file.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut content);
    if read.map_err(failed("read", path))? as u64 > KEY_FILE_BYTES_MAX {
        return Err(KeyFileError::TooLong { path: path.into() });
    }
    Ok(Some(content))
}

fn refuse_too_open(file: &File, path: &Path, private: u32) -> Result<(), KeyFileError> {
    let mode = file.metadata().map_err(failed("inspect", path))?.mode() & 0o777;
    if mode & FOREIGN_MODE == 0 {
        Ok(())
    } else {
        Err(KeyFileError::TooOpen { path: path.into(), mode, private })
    }
}

/// Stores the content under the final name, unless another process got there first.
fn store_unless_there(directory: &Path, path: &Path, content: &[u8]) -> Result<(), KeyFileError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| KeyFileError::Generate)?;
    let temporary = directory.join(format!(".new-{:016x}", u64::from_ne_bytes(random)));
    let written = write_new(&temporary, content).map_err(failed("write", &temporary));
    let linked = written.and_then(|()| match std::fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("link", path)(error)),
        _ => Ok(()),
    });
    let removed = std::fs::remove_file(&temporary).map_err(failed("remove", &temporary));
    linked.and(removed)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_path_buf();
    move |source| KeyFileError::Io { verb, path, source }
}

/// Error reading or creating the key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Other users may read or replace the file.
    #[error("{path} is open to other users (mode {mode:04o}); make it private: \
             chmod {private:o} {path}", path = path.display())]
    TooOpen {
        /// The file or its directory.
        path: PathBuf,
        /// The current permission bits of the file or directory.
        mode: u32,
        /// The permission bits that the file or directory should have.
        private: u32,
    },
    /// The file is too long for a key.
    #[error("{} is longer than any key", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The content of the file is not a usable key.
    #[error("{path} contains no Ed25519 key ({reason}); restore it from a backup, or remove it to \
             generate a new key, which invalidates all tokens signed with the old one",
            path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The crypto library's reason.
        reason: KeyRejected,
    },
    /// The content of the file is not a master key.
    #[error("{path} contains no master key, which has {MASTER_KEY_BYTES} bytes and not {bytes}; \
             restore it from a backup: without it, no API key of a wallet works",
            path = path.display())]
    NoMasterKey {
        /// The file.
        path: PathBuf,
        /// Number of bytes in the file.
        bytes: usize,
    },
    /// The file vanished between two reads: another program is changing the directory.
    #[error("{} was removed while it was being read", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The operating system provided no randomness.
    #[error("cannot generate a key: the operating system provides no randomness")]
    Generate,
    /// The operating system refused an operation.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// The operation.
        verb: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_created_key_is_private_and_persists() {
        let temporary = tempfile::tempdir().unwrap();
        let data = temporary.path().join("not/there/yet");
        assert_eq!(KeyFile::Issuer.load_or_create(&data, || Some(vec![7; 5])).unwrap(), [7; 5]);
        assert_eq!(mode(&KeyFile::Issuer.path(&data)), 0o600);
        assert_eq!(mode(&KeyFile::Issuer.directory(&data)), 0o700);
        assert_eq!(mode(&data), 0o700);
        assert_eq!(names(&KeyFile::Issuer.directory(&data)), ["ed25519.pk8"]);
        let again = KeyFile::Issuer.load_or_create(&data, || panic!("a key is there"));
        assert_eq!(again.unwrap(), [7; 5]);
    }

    #[test]
    fn racing_processes_get_the_same_key() {
        for _ in 0..20 {
            let temporary = tempfile::tempdir().unwrap();
            let barrier = Barrier::new(8);
            let found: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..8_u8)
                    .map(|racer| {
                        let (barrier, data) = (&barrier, temporary.path());
                        // Every racer waits inside `generate`, so none of them has found a file.
                        scope.spawn(move || {
                            KeyFile::Issuer.load_or_create(data, || {
                                barrier.wait();
                                Some(vec![racer; 64])
                            })
                        })
                    })
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap().unwrap()).collect()
            });
            assert!(found.iter().all(|content| *content == found[0]), "{found:?}");
            assert_eq!(names(&KeyFile::Issuer.directory(temporary.path())), ["ed25519.pk8"]);
        }
    }

    #[test]
    fn a_copy_keeps_the_permissions_and_needs_a_key() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(!KeyFile::Issuer.copy(from.path(), to.path()).unwrap());
        assert!(names(to.path()).is_empty());
        KeyFile::Issuer.load_or_create(from.path(), || Some(vec![7; 5])).unwrap();
        assert!(KeyFile::Issuer.copy(from.path(), to.path()).unwrap());
        assert_eq!(std::fs::read(KeyFile::Issuer.path(to.path())).unwrap(), [7; 5]);
        assert_eq!(mode(&KeyFile::Issuer.path(to.path())), 0o600);
        assert_eq!(mode(&KeyFile::Issuer.directory(to.path())), 0o700);
    }

    #[test]
    fn a_file_open_to_others_is_refused_with_the_chmod_to_run() {
        let path = KeyFile::path as fn(KeyFile, &Path) -> PathBuf;
        for (target, wrong, cure) in [
            (path, 0o640, "chmod 600"),
            (path, 0o604, "chmod 600"),
            (path, 0o620, "chmod 600"),
            (KeyFile::directory, 0o755, "chmod 700"),
        ] {
            let temporary = tempfile::tempdir().unwrap();
            KeyFile::Issuer.load_or_create(temporary.path(), || Some(vec![1])).unwrap();
            let target = target(KeyFile::Issuer, temporary.path());
            std::fs::set_permissions(&target, Permissions::from_mode(wrong)).unwrap();
            let error = KeyFile::Issuer.load_or_create(temporary.path(), || None).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("(mode {wrong:04o})")), "{error}");
            assert!(error.ends_with(&format!("{cure} {}", target.display())), "{error}");
        }
    }

    #[test]
    fn errors_name_the_obstacle() {
        let temporary = tempfile::tempdir().unwrap();
        KeyFile::Issuer.load_or_create(temporary.path(), || Some(vec![0; 4097])).unwrap_err();
        let error = KeyFile::Issuer.load_or_create(temporary.path(), || None).unwrap_err();
        assert!(matches!(error, KeyFileError::TooLong { .. }), "{error}");

        let temporary = tempfile::tempdir().unwrap();
        std::fs::write(temporary.path().join("issuer"), "a file").unwrap();
        let error = KeyFile::Issuer.load_or_create(temporary.path(), || None).unwrap_err();
        assert!(matches!(error, KeyFileError::Io { verb: "create", .. }), "{error}");
    }

    #[test]
    fn a_master_key_is_random_private_and_persists() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let key = load_or_create_master_key(one.path()).unwrap();
        assert_eq!(load_or_create_master_key(one.path()).unwrap(), key);
        assert_ne!(load_or_create_master_key(other.path()).unwrap(), key);
        let path = KeyFile::Wallets.path(one.path());
        assert_eq!(path, one.path().join("wallets/master.key"));
        assert_eq!(std::fs::read(&path).unwrap(), key);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        KeyFile::Wallets.check(one.path()).unwrap();
        std::fs::write(&path, &key[1..]).unwrap();
        for error in [
            KeyFile::Wallets.check(one.path()).unwrap_err(),
            load_or_create_master_key(one.path()).unwrap_err(),
        ] {
            let expected = "contains no master key, which has 32 bytes and not 31; restore it";
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
