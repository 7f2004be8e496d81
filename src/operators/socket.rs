//! Creates and removes the socket's file.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::socket_path;

/// A bound socket. Dropping it removes its file.
#[derive(Debug)]
pub struct OperatorSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl OperatorSocket {
    /// Binds the socket of this data folder, which the caller has locked, and replaces the file of
    /// a server that crashed.
    ///
    /// Only the file's mode keeps other users out, and a new socket's mode depends on the umask. So
    /// the socket is created in a folder that no other user can enter, gets its mode there, and is
    /// then renamed.
    pub fn bind(data: &Path) -> io::Result<Self> {
        Self::bind_at(data, &socket_path(data))
    }

    /// Binds a socket at `path`, which must be in the data folder.
    pub fn bind_at(data: &Path, path: &Path) -> io::Result<Self> {
        // The temporary path is shorter than the final path, so only the final path can be too
        // long.
        let private = data.join("operator");
        remove_private(&private)?;
        DirBuilder::new().mode(0o700).create(&private)?;
        let bound = bind_in(&private, path);
        // Remove the folder before a failed bind is reported.
        remove_private(&private)?;
        let listener = bound?;
        Ok(Self { listener, path: path.to_path_buf() })
    }

    /// Returns the path of the socket's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle to the listening socket.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for OperatorSocket {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

fn bind_in(private: &Path, path: &Path) -> io::Result<UnixListener> {
    let unnamed = private.join("s");
    // Fail now if the final path is too long for clients to connect to.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    let listener = UnixListener::bind(&unnamed)?;
    fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    fs::rename(&unnamed, path)?;
    Ok(listener)
}

fn remove_private(private: &Path) -> io::Result<()> {
    match fs::remove_dir_all(private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_owner_may_open_the_socket_and_it_leaves_nothing_behind() {
        let data = tempfile::tempdir().unwrap();
        let path = socket_path(data.path());
        // The state that a killed server leaves behind.
        drop(UnixListener::bind(&path).unwrap());
        fs::create_dir(data.path().join("operator")).unwrap();
        UnixStream::connect(&path).unwrap_err();

        let socket = OperatorSocket::bind(data.path()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
        drop(socket);
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_and_leaves_nothing_behind() {
        let data = tempfile::tempdir().unwrap();
        let long = data.path().join("d".repeat(120));
        fs::create_dir(&long).unwrap();
        let refused = OperatorSocket::bind(&long).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
    }
}
