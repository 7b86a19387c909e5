//! Bytes at a fixed address that kernels use directly: the library's own, aligned to a cache line, or a caller's vector.

use crate::Error;
use crate::mirror::Mirror;
use onestep_ir::{Array, Element};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of the library's own buffers, in bytes: a cache line, and the widest vector register. A caller's vector has
/// only its element's, which is all that kernels ask for.
pub const ALIGNMENT: usize = 64;

/// Memory of fixed size and address. Kernels write it through [`Buffer::pointer`] while the runtime holds the exclusive
/// borrow that [`crate::Bound::run`] asks for.
#[derive(Debug)]
pub struct Buffer {
    pointer: NonNull<u8>,
    bytes: usize,
    owner: Owner,
    /// Its copy on a device with memory of its own.
    mirror: Arc<Mirror>,
}

/// Who frees the memory.
#[derive(Debug)]
enum Owner {
    /// This buffer, with this layout.
    Own(Layout),
    /// A vector of some element type; it is not touched until it is given back or dropped.
    Given(Box<dyn Any + Send + Sync>),
}

// SAFETY: a buffer owns its memory, and its methods borrow it as a Vec<u8> would.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads; writes through the raw pointer are the business of whoever holds the state exclusively.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `bytes` zeros, or the error that the system does not have them.
    pub fn new(bytes: usize) -> Result<Buffer, Error> {
        let refused = Error::Memory { bytes };
        let Some(size) = bytes.max(1).checked_next_multiple_of(ALIGNMENT) else { return Err(refused) };
        let Ok(layout) = Layout::from_size_align(size, ALIGNMENT) else { return Err(refused) };
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { return Err(refused) };
        Ok(Buffer { pointer, bytes, owner: Owner::Own(layout), mirror: Arc::default() })
    }

    /// The bytes of an array. The array itself is proof that about so much memory can be had, so where it cannot the process
    /// ends, as with any small allocation.
    pub fn of(array: &Array) -> Buffer {
        Buffer::copy(array.bytes())
    }

    /// These bytes, by the same reasoning.
    pub fn copy(bytes: &[u8]) -> Buffer {
        let b = Buffer::new(bytes.len()).unwrap_or_else(|_| handle_alloc_error(Layout::for_value(bytes)));
        b.write(bytes);
        b
    }

    /// A caller's vector, where it is.
    pub fn given<T: Element>(mut vector: Vec<T>) -> Buffer {
        // An empty vector's pointer is not null either.
        let pointer = NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Buffer {
            pointer: pointer.cast(),
            bytes: size_of_val(&vector[..]),
            owner: Owner::Given(Box::new(vector)),
            mirror: Arc::default(),
        }
    }

    /// Whether it is a caller's vector of this element type.
    pub fn is_given<T: Element>(&self) -> bool {
        matches!(&self.owner, Owner::Given(vector) if vector.is::<Vec<T>>())
    }

    /// The caller's vector, if it is one of this element type, which the caller has settled.
    pub fn give_back<T: Element>(mut self) -> Option<Vec<T>> {
        match std::mem::replace(&mut self.owner, Owner::Given(Box::new(()))) {
            Owner::Given(vector) => vector.downcast::<Vec<T>>().ok().map(|v| *v),
            own => {
                self.owner = own;
                None
            }
        }
    }

    /// Brings the bytes up to date if a program on another device has changed its copy of them.
    pub fn settle(&self) -> Result<(), Error> {
        // SAFETY: the memory is this buffer's, and every reader comes through here.
        unsafe { self.mirror.to_host(self.pointer(), self.bytes) }
    }

    /// Its copy on a device with memory of its own.
    pub fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// Its address.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its size.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Overwrites all bytes.
    pub fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes, "the caller has checked the size");
        self.mirror.host_changed();
        // SAFETY: as for `write_at`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(), bytes.len()) }
    }

    /// Overwrites the bytes from `offset` on.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "the caller has checked the size");
        self.settle()?;
        self.mirror.host_changed();
        // SAFETY: the range is checked, the memory is this buffer's, and `bytes` cannot overlap it: a slice of it that lives
        // now borrows the state, which whoever writes holds exclusively.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer().add(offset), bytes.len()) }
        Ok(())
    }

    /// The bytes.
    pub fn bytes(&self) -> Result<&[u8], Error> {
        self.settle()?;
        Ok(self.stored())
    }

    /// The bytes as they are here, which a copy elsewhere may be ahead of.
    pub fn stored(&self) -> &[u8] {
        // SAFETY: the memory is initialised (zeroed at first, or a vector's elements) and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bytes) }
    }

    /// The elements, which are of this type: the caller has compared dtypes.
    pub fn elements<T: Element>(&self) -> Result<&[T], Error> {
        self.settle()?;
        let n = self.bytes / size_of::<T>();
        // SAFETY: as for `stored`; every bit pattern is an element, and both the library's memory and a vector of the dtype's
        // storage type are aligned for it.
        Ok(unsafe { std::slice::from_raw_parts(self.aligned::<T>(), n) })
    }

    /// The elements, to be changed.
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T], Error> {
        self.settle()?;
        self.mirror.host_changed();
        let n = self.bytes / size_of::<T>();
        // SAFETY: as for `elements`; the exclusive borrow of the buffer is one of its memory.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.aligned::<T>(), n) })
    }

    fn aligned<T: Element>(&self) -> *mut T {
        let pointer = self.pointer().cast::<T>();
        assert!(pointer.is_aligned(), "a buffer is aligned for its elements");
        pointer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Own(layout) = self.owner {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { dealloc(self.pointer(), layout) }
        }
    }
}
