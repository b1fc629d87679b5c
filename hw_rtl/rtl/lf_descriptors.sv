// The table of descriptors: one write port, one read port for each queue (data the cycle after the read, held
// until the next).
module lf_descriptors
  import lf_isa_pkg::*;
  import lf_port_pkg::*;
(
  input  logic                   clk_i,
  input  describe_port_t         write_i,
  input  logic [2:0]             read_i,  // LOAD, STORE, EXEC
  input  logic [2:0][5:0]        read_descriptor_i,
  output transfer_t [1:0]        transfer_o,
  output computation_t           computation_o
);
  logic [ComputationBits-1:0] computation;

  for (genvar queue = 0; queue < 2; queue++) begin : gen_transfer
    logic [TransferBits-1:0] transfer;

    lf_memory #(
      .Width(TransferBits),
      .Depth(Descriptors)
    ) u_table (
      .clk_i,
      .read_i         (read_i[queue]),
      .read_address_i (read_descriptor_i[queue]),
      .read_data_o    (transfer),
      .write_i        (write_i.valid),
      .write_address_i(write_i.descriptor),
      .write_parts_i  (1'b1),
      .write_data_i   (write_i.payload[TransferBits-1:0])
    );

    assign transfer_o[queue] = transfer_t'(PayloadBits'(transfer));
  end

  lf_memory #(
    .Width(ComputationBits),
    .Depth(Descriptors)
  ) u_table (
    .clk_i,
    .read_i         (read_i[2]),
    .read_address_i (read_descriptor_i[2]),
    .read_data_o    (computation),
    .write_i        (write_i.valid),
    .write_address_i(write_i.descriptor),
    .write_parts_i  (1'b1),
    .write_data_i   (write_i.payload[ComputationBits-1:0])
  );

  assign computation_o = computation_t'(PayloadBits'(computation));

  logic unused;
  assign unused = ^write_i.payload[PayloadBits-1:ComputationBits];
endmodule
