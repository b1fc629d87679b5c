// Makes bytes of int32 sums, Lanes at once: bias, factor, zero point, bounds; or passes sums on as they are,
// to be held. A sum a cycle; six stages, which never stand still: v (with bias), parts of the product,
// product, shifted by 16s, shifted, byte. Halves go to even: of what is shifted out, it is kept whether
// there was anything.
module lf_requantize
  import lf_isa_pkg::MeanBits;
  import lf_setup_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned TagBits = 1
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                valid_i,
  input  logic                place_i,  // of the numbers that are meant
  input  logic                hold_i,
  input  logic [TagBits-1:0]  tag_i,  // comes out with the bytes
  input  logic [Lanes*32-1:0] sum_i,
  // Numbers of the two places: written for one at a time, once all that goes by them is out.
  input  logic                write_place_i,
  input  logic [Lanes-1:0]    bias_write_i,
  input  logic signed [31:0]  bias_i [Lanes],
  input  logic                factor_write_i,
  input  logic [30:0]         multiplier_i [Lanes],
  input  logic [5:0]          shift_i [Lanes],
  input  bounds_t [1:0]       bounds_i,
  input  logic [1:0]          mean_i,  // whether products are first rounded to multiples of 2^MeanBits
  output logic                valid_o,
  output logic                place_o,
  output logic                hold_o,
  output logic [TagBits-1:0]  tag_o,
  output logic [Lanes*8-1:0]  bytes_o,
  output logic [Lanes*32-1:0] held_o
);
  typedef struct packed {
    logic               valid;
    logic               place;
    logic               hold;
    logic [TagBits-1:0] tag;
  } stage_t;
  stage_t v_stage_q, part_q, product_q, coarse_stage_q, fine_stage_q, byte_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      v_stage_q <= '0;
      part_q <= '0;
      product_q <= '0;
      coarse_stage_q <= '0;
      fine_stage_q <= '0;
      byte_q <= '0;
    end else begin
      v_stage_q <= '{valid: valid_i, place: place_i, hold: hold_i, tag: tag_i};
      part_q <= v_stage_q;
      product_q <= part_q;
      coarse_stage_q <= product_q;
      fine_stage_q <= coarse_stage_q;
      byte_q <= fine_stage_q;
    end
  end

  logic signed [31:0] bias_q [2][Lanes];
  logic [30:0]        multiplier_q [2][Lanes];
  logic [5:0]         shift_q [2][Lanes];

  always_ff @(posedge clk_i) begin
    for (int unsigned p = 0; p < 2; p++) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        if (write_place_i == 1'(p) && bias_write_i[l]) bias_q[p][l] <= bias_i[l];
        if (write_place_i == 1'(p) && factor_write_i) begin
          multiplier_q[p][l] <= multiplier_i[l];
          shift_q[p][l] <= shift_i[l];
        end
      end
    end
  end

  logic signed [31:0] v_q [Lanes];
  logic [31:0]        low_low_q [Lanes], low_high_q [Lanes];  // of v 16 and 16 bits, of the factor 15 and 16
  logic signed [31:0] high_low_q [Lanes], high_high_q [Lanes];
  logic signed [63:0] product_of_q [Lanes];
  logic signed [31:0] coarse_q [Lanes];  // 27 bits, or a held sum
  logic signed [31:0] fine_q [Lanes];  // 12 bits, or a held sum
  logic [Lanes-1:0]   coarse_lost_q, fine_lost_q;  // whether bits that were shifted out are not all 0

  // Of a mean, a product as a multiple of 2^MeanBits, which is more than the factor's error makes of it: what
  // should be a half is one.
  function automatic logic signed [63:0] whole(logic signed [63:0] product, logic mean);
    logic signed [63:0] found;
    found = product + (mean ? 64'sd1 <<< (MeanBits - 1) : 64'sd0);
    if (mean) found[MeanBits-1:0] = '0;
    return found;
  endfunction

  // Twice the product, less 16, 32 or 48 bits; what 27 bits do not hold is as good as the most that they do.
  function automatic logic signed [31:0] coarse(logic signed [63:0] product, logic [1:0] sixteens);
    logic signed [63:0] found;
    found = (product <<< 1) >>> {sixteens, 4'd0};
    return (found >>> 26) == (found >>> 63) ? 32'(found) : 32'((found >>> 63) ^ 64'sh3FF_FFFF);
  endfunction

  // Whether these bits of twice the product are not all 0.
  function automatic logic coarse_lost(logic [46:0] product, logic [1:0] sixteens);
    return (sixteens != 2'd0 && product[14:0] != '0) || (sixteens > 2'd1 && product[30:15] != '0) ||
           (sixteens == 2'd3 && product[46:31] != '0);
  endfunction

  // The same for the other bits of the shift, and 12 bits.
  function automatic logic signed [31:0] fine(logic signed [26:0] twice, logic [3:0] shift);
    logic signed [31:0] found;
    found = 32'(twice) >>> shift;
    return (found >>> 11) == (found >>> 31) ? found : (found >>> 31) ^ 32'sh7FF;
  endfunction

  function automatic logic fine_lost(logic [14:0] twice, logic [3:0] shift);
    return (twice & ~(15'h7FFF << shift)) != '0;
  endfunction

  // Half of what is left, rounded, is the scaled sum: bounds are met before it is halved. A half goes up if
  // anything was lost, or to even.
  function automatic logic [7:0] bounded(logic signed [11:0] twice, logic lost, bounds_t bounds);
    return twice >= bounds.above ? bounds.high : twice < bounds.below ? bounds.low :
           twice[8:1] + bounds.zero + 8'(twice[0] && (lost || twice[1]));
  endfunction

  always_ff @(posedge clk_i) begin
    if (valid_i) for (int unsigned l = 0; l < Lanes; l++) v_q[l] <= sum_i[l*32 +: 32] + bias_q[place_i][l];
    if (v_stage_q.valid) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        low_low_q[l] <= 32'(v_q[l][15:0]) * 32'(multiplier_q[v_stage_q.place][l][14:0]);
        low_high_q[l] <= 32'(v_q[l][15:0]) * 32'(multiplier_q[v_stage_q.place][l][30:15]);
        high_low_q[l] <= 32'(signed'(v_q[l][31:16]))
            * 32'(signed'({1'b0, multiplier_q[v_stage_q.place][l][14:0]}));
        high_high_q[l] <= 32'(signed'(v_q[l][31:16]))
            * 32'(signed'({1'b0, multiplier_q[v_stage_q.place][l][30:15]}));
      end
    end
    if (part_q.valid) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        product_of_q[l] <= whole(64'({1'b0, low_low_q[l]}) + 64'({1'b0, low_high_q[l], 15'd0})
            + (64'(high_low_q[l]) <<< 16) + (64'(high_high_q[l]) <<< 31),
            mean_i[part_q.place] && !part_q.hold);
      end
    end
    if (product_q.valid) begin
      if (product_q.hold) begin
        for (int unsigned l = 0; l < Lanes; l++) coarse_q[l] <= product_of_q[l][31:0];
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          coarse_q[l] <= coarse(product_of_q[l], shift_q[product_q.place][l][5:4]);
          coarse_lost_q[l] <= coarse_lost(product_of_q[l][46:0], shift_q[product_q.place][l][5:4]);
        end
      end
    end
    if (coarse_stage_q.valid) begin
      if (coarse_stage_q.hold) fine_q <= coarse_q;
      else for (int unsigned l = 0; l < Lanes; l++) begin
        fine_q[l] <= fine(coarse_q[l][26:0], shift_q[coarse_stage_q.place][l][3:0]);
        fine_lost_q[l] <= coarse_lost_q[l]
            || fine_lost(coarse_q[l][14:0], shift_q[coarse_stage_q.place][l][3:0]);
      end
    end
    if (fine_stage_q.valid) begin
      if (fine_stage_q.hold) begin
        for (int unsigned l = 0; l < Lanes; l++) held_o[l*32 +: 32] <= fine_q[l];
      end else begin
        for (int unsigned l = 0; l < Lanes; l++)
          bytes_o[l*8 +: 8] <= bounded(fine_q[l][11:0], fine_lost_q[l], bounds_i[fine_stage_q.place]);
      end
    end
  end

  assign valid_o = byte_q.valid;
  assign place_o = byte_q.place;
  assign hold_o = byte_q.hold;
  assign tag_o = byte_q.tag;
endmodule
