//! Inputs made from seeds: a few bytes are changed, left out, repeated, or taken from another seed
//! or from the dictionary of the target.

use std::fs;
use std::path::Path;

const BYTES_MAX: usize = 4096;
const CHANGES_MAX: usize = 4;
const PIECE_BYTES_MAX: usize = 24;

/// Prints the input if its run panics.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was: b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// The seeds of a target, in the order of their names.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new("fuzz/seeds").join(target);
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.into_iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(seeds.len() > 1, "{target} needs seeds in fuzz/seeds");
    seeds
}

/// Endless inputs, the same for the same seeds.
pub(crate) fn made_from(target: &str, seeds: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
    let words = words(target);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    std::iter::from_fn(move || {
        let mut input = random.one_of(seeds).clone();
        for _ in 0..=random.below(CHANGES_MAX) {
            random.change(&mut input, seeds, &words);
        }
        input.truncate(BYTES_MAX);
        Some(input)
    })
}

/// The words of the dictionary of a target, or of its family.
fn words(target: &str) -> Vec<Vec<u8>> {
    let family = target.split('_').next().unwrap();
    let found = [target, family]
        .map(|name| Path::new("fuzz/dictionaries").join(name).with_extension("dict"))
        .into_iter()
        .find(|path| path.exists());
    let Some(path) = found else { return vec![vec![0], vec![0xff; 4]] };
    let text = fs::read_to_string(path).unwrap();
    let quoted = text.lines().filter(|line| !line.starts_with('#'));
    quoted.filter_map(|line| Some(unescaped(line.split_once('"')?.1.strip_suffix('"')?))).collect()
}

/// A word of a dictionary without its escapes: `\\`, `\"` and `\xAB`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'x', digits @ ..]) if digits.len() >= 2 => {
                let digits = str::from_utf8(&digits[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                &after[3..]
            }
            (b'\\', [escaped, after @ ..]) => {
                bytes.push(*escaped);
                after
            }
            _ => {
                bytes.push(byte);
                after
            }
        };
    }
    bytes
}

/// Numbers that are random enough, by the generator `xorshift64*`.
struct Random(u64);

impl Random {
    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(number).unwrap() % end
    }

    fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A short piece of these bytes.
    fn piece(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let length = self.below(PIECE_BYTES_MAX).min(bytes.len() - start);
        start..start + length
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(7) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap();
                if let Some(before) = input.get_mut(at) {
                    *before = byte;
                }
            }
            2 => drop(input.drain(self.piece(input))),
            3 => {
                let piece = input[self.piece(input)].to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let other = self.one_of(seeds);
                let piece = other[self.piece(other)].to_vec();
                input.splice(at..at, piece);
            }
            5 => {
                // The beginning of the one and the end of the other.
                let other = self.one_of(seeds);
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let word = self.one_of(words).clone();
                let end = if self.below(2) == 0 { at } else { (at + word.len()).min(input.len()) };
                input.splice(at..end, word);
            }
        }
    }
}
