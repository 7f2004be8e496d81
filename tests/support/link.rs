//! A connection between two processes that can be cut: bytes are held back, as by a network that
//! drops every packet, and arrive once the link is mended.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Listens at [`Self::address`], and passes on every connection to another address.
#[derive(Debug)]
pub struct Link {
    /// Where to connect to.
    pub address: SocketAddr,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct Wire {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    is_cut: bool,
    is_over: bool,
    /// Both ends of each connection.
    streams: Vec<TcpStream>,
}

impl Link {
    /// A link to this address, where somebody listens by the time that it is used.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let wire = Arc::new(Wire { state: Mutex::default(), changed: Condvar::new() });
        thread::spawn({
            let wire = wire.clone();
            move || wire.accept(&listener, target)
        });
        Self { address, wire }
    }

    /// Holds back everything from now on.
    pub fn cut(&self) {
        self.wire.lock().is_cut = true;
    }

    /// Passes on everything again, beginning with what was held back.
    pub fn mend(&self) {
        self.wire.lock().is_cut = false;
        self.wire.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.wire.lock();
        state.is_over = true;
        // They may have ended already.
        state.streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        drop(state);
        self.wire.changed.notify_all();
        // The thread that accepts connections wakes up.
        drop(TcpStream::connect(self.address));
    }
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the link is whole. False if it is over.
    fn wait(&self) -> bool {
        let waits = |state: &mut State| state.is_cut && !state.is_over;
        let state = self.changed.wait_while(self.lock(), waits);
        !state.unwrap_or_else(PoisonError::into_inner).is_over
    }

    fn accept(self: Arc<Self>, listener: &TcpListener, target: SocketAddr) {
        for accepted in listener.incoming() {
            if self.lock().is_over {
                return;
            }
            let Ok(near) = accepted else { continue };
            let wire = self.clone();
            // One that is opened while the link is cut gets nowhere, and holds up no other.
            thread::spawn(move || {
                if wire.wait()
                    && let Ok(far) = TcpStream::connect(target)
                {
                    wire.join(&near, &far);
                }
            });
        }
    }

    /// Passes on the bytes of a connection in both directions until it ends.
    fn join(&self, near: &TcpStream, far: &TcpStream) {
        for stream in [near, far] {
            // Nothing waits for more to send.
            let _ = stream.set_nodelay(true);
            self.lock().streams.extend(stream.try_clone());
        }
        thread::scope(|scope| {
            scope.spawn(|| self.carry(near, far));
            self.carry(far, near);
        });
        let ends = [near.peer_addr(), far.peer_addr()].map(Result::ok);
        let is_other = |stream: &TcpStream| !ends.contains(&stream.peer_addr().ok());
        self.lock().streams.retain(is_other);
    }

    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes)
            && self.wait()
            && to.write_all(&bytes[..length]).is_ok()
        {}
        // That it has ended is held back too.
        self.wait();
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_sent_while_a_link_is_cut_comes_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::to(listener.local_addr().unwrap());
        let mut near = TcpStream::connect(link.address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut bytes = [0; 3];
        near.write_all(b"one").unwrap();
        far.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"one");
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        link.cut();
        near.write_all(b"two").unwrap();
        assert!(far.read_exact(&mut bytes).is_err(), "nothing comes");
        far.set_read_timeout(None).unwrap();
        link.mend();
        far.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"two");
        drop(link);
        assert_eq!(near.read(&mut bytes).unwrap(), 0, "it ends with the link");
    }
}
