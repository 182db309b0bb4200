//! What the peers of the tests that are asked over a pipe share: frames on standard input and output.
//!
//! A frame is a little-endian u32 length, then that many bytes.

use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};

/// Answers each frame of standard input with one, flushed at once, until the input ends.
pub fn answer_each(mut answer: impl FnMut(&[u8]) -> io::Result<Vec<u8>>) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    while let Some(frame) = read_frame(&mut input)? {
        let packed = answer(&frame)?;
        output.write_all(&(packed.len() as u32).to_le_bytes())?;
        output.write_all(&packed)?;
        output.flush()?;
    }
    Ok(())
}

/// The next frame, or nothing at the end of input.
fn read_frame(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    input.read_exact(&mut frame)?;
    Ok(Some(frame))
}
