//! Integers and booleans only, so that each number is exact: a game of life, primes, bit tricks, a histogram, ranks.

use burn::prelude::*;
use burn::tensor::{IndexingUpdateOp, IntDType};

use crate::host::Numbers;
use crate::report::show;

/// Prints what each part computes.
pub fn run(device: &Device, seed: u64) {
    let mut random = Numbers::new(seed);
    life(device, &mut random);
    primes(device);
    bits(device, &mut random);
    histogram(device, &mut random);
    ranks(device, &mut random);
    widths(device, &mut random);
}

/// Numbers from `-bound` to `bound`.
fn numbers<const D: usize>(
    random: &mut Numbers,
    bound: f32,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D, Int> {
    let count = shape.iter().product();
    let values: Vec<i32> = (0..count)
        .map(|_| (bound * random.uniform()) as i32)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Conway's game on a torus: how many live in each generation, and the last one.
fn life(device: &Device, random: &mut Numbers) {
    let mut alive = numbers(random, 100.0, [24, 17], device).greater_elem(30);
    let mut census = Vec::new();
    for _ in 0..12 {
        let cells = alive.clone().int();
        let mut neighbours = cells.zeros_like();
        for shifts in [
            [-1, -1],
            [-1, 0],
            [-1, 1],
            [0, -1],
            [0, 1],
            [1, -1],
            [1, 0],
            [1, 1],
        ] {
            neighbours = neighbours + cells.clone().roll(&shifts, &[0, 1]);
        }
        let born = neighbours.clone().equal_elem(3);
        alive = born.bool_or(alive.bool_and(neighbours.equal_elem(2)));
        census.push(alive.clone().int().sum());
    }
    show("life census", &Tensor::cat(census, 0).into_data());
    show("life board", &alive.clone().into_data());
    show("life empty rows", &alive.any_dim(1).bool_not().into_data());
}

/// The sieve: the primes below 400 by `nonzero`, the gaps between them.
fn primes(device: &Device) {
    let numbers = Tensor::<1, Int>::arange(0..400, device);
    let mut composite = numbers.clone().lower_elem(2);
    for divisor in 2..20 {
        let divides = numbers.clone().remainder_scalar(divisor).equal_elem(0);
        composite = composite.bool_or(divides.bool_and(numbers.clone().greater_elem(divisor)));
    }
    let primes = composite.bool_not().nonzero().remove(0);
    let count = primes.dims()[0];
    let gaps = primes.clone().slice([1..count]) - primes.clone().slice([0..count - 1]);
    show("primes", &primes.into_data());
    show("largest gap", &gaps.clone().max().into_data());
    show("twins", &gaps.equal_elem(2).int().sum().into_data());
}

/// A xorshift generator run on the device, and how many bits of its numbers are set.
fn bits(device: &Device, random: &mut Numbers) {
    let mut state = numbers(random, 2e9, [5, 7], device);
    for _ in 0..3 {
        state = state
            .clone()
            .bitwise_xor(state.bitwise_left_shift_scalar(13));
        let shifted = state.clone().bitwise_right_shift_scalar(17);
        // The shift carries the sign along; the generator wants zeros.
        state = state.bitwise_xor(shifted.bitwise_and_scalar(0x7fff));
        state = state
            .clone()
            .bitwise_xor(state.bitwise_left_shift_scalar(5));
    }
    let places = Tensor::<1, Int>::arange(0..32, device).reshape([1, 1, 32]);
    let spread: Tensor<3, Int> = state.clone().unsqueeze_dim(2);
    let set = spread
        .expand([5, 7, 32])
        .bitwise_right_shift(places.expand([5, 7, 32]));
    let set = set.bitwise_and_scalar(1).sum_dim(2);
    show("xorshift", &state.clone().into_data());
    show("bits set", &set.into_data());
    show("inverted", &state.bitwise_not().into_data());
}

/// Counts by `scatter` and by one-hot rows, running totals, and where a quantile lies.
fn histogram(device: &Device, random: &mut Numbers) {
    let bins = numbers(random, 8.0, [200], device).abs();
    let counts = Tensor::<1, Int>::zeros([8], device);
    let counts = counts.scatter(0, bins.clone(), bins.ones_like(), IndexingUpdateOp::Add);
    let also: Tensor<2, Int> = bins.one_hot(8);
    let total = counts.clone().cumsum(0);
    let median = total.clone().lower_elem(100).int().sum();
    show("counts", &counts.clone().into_data());
    show(
        "same",
        &also.sum_dim(0).reshape([8]).equal(counts).all().into_data(),
    );
    show("running total", &total.into_data());
    show("median", &median.into_data());
}

/// Sorts with ties, the largest of each row, and picking rows and cells by index.
fn ranks(device: &Device, random: &mut Numbers) {
    let table = numbers(random, 9.0, [6, 11], device);
    let (sorted, _) = table.clone().sort_with_indices(1);
    // The order of equal numbers is nobody's promise; the numbers that the order picks are.
    let order = table.clone().argsort_descending(1);
    show("sorted", &sorted.into_data());
    show("descending", &table.clone().gather(1, order).into_data());
    show("largest", &table.clone().topk(3, 1).into_data());
    show("running minimum", &table.clone().cummin(1).into_data());

    let rows = Tensor::<1, Int>::from_data([5, 0, 5, 2], device);
    let picked = table.clone().select(0, rows.clone());
    let back = table
        .clone()
        .select_assign(0, rows, picked.clone(), IndexingUpdateOp::Add);
    show("picked", &picked.into_data());
    show("added back", &back.clone().into_data());
    let odd = back.clone().bitwise_and_scalar(1).equal_elem(1);
    let masked = back
        .clone()
        .mask_fill(odd.clone(), -1)
        .mask_where(back.greater_elem(9), table);
    show("masked", &masked.into_data());
    show("all odd", &odd.clone().all_dim(0).into_data());
    show("diagonal", &odd.int().triu(1).into_data());
}

/// Division and wrapping in several widths.
fn widths(device: &Device, random: &mut Numbers) {
    let lhs = numbers(random, 2e9, [4, 5], device);
    let rhs = numbers(random, 40.0, [4, 5], device);
    let rhs = rhs.clone().mask_fill(rhs.equal_elem(0), 7);
    for dtype in [
        IntDType::I64,
        IntDType::I32,
        IntDType::I16,
        IntDType::I8,
        IntDType::U8,
    ] {
        let (lhs, rhs) = (lhs.clone().cast(dtype), rhs.clone().abs().cast(dtype));
        let name = |what: &str| format!("{dtype:?} {what}");
        show(&name("quotient"), &(lhs.clone() / rhs.clone()).into_data());
        show(&name("remainder"), &(lhs.clone() % rhs.clone()).into_data());
        show(&name("product"), &(lhs.clone() * rhs.clone()).into_data());
        show(&name("less"), &lhs.lower(rhs).into_data());
    }
    let small = numbers(random, 4.0, [4, 5], device);
    show("cubes", &small.clone().powi_scalar(3).into_data());
    show("products", &small.clone().prod_dim(0).into_data());
    show(
        "matmul",
        &small.clone().matmul(small.transpose()).into_data(),
    );
}
